package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"relay/llama"
	"relay/p2p/keys"
	"relay/p2p/membership"
)

const (
	defaultListen  = "127.0.0.1:8420"
	defaultP2PPort = 8421
	mib            = 1 << 20
	// defaultReserve is the least memory left to the machine's owner, in bytes.
	defaultReserve = 1 << 30
	// defaultVRAMReserveMB is what is left free on each GPU for its driver and for
	// buffers that grow, defaultBusyIgnoreMB what other programs may hold of one
	// before it is left to them, in MiB.
	defaultVRAMReserveMB = 512
	defaultBusyIgnoreMB  = 256
	// maxMB bounds sizes in MiB, so that they can be counted in bytes: 2^60.
	maxMB = 1 << 40
)

// settings are what `relay up` goes by: flags over environment over what
// earlier flags said.
type settings struct {
	stateDir  string
	modelsDir string
	listen    string
	p2pListen []string // Empty: the remembered port, or the next free one.
	engineBin string
	apiKey    string
	tls       string
	slots     int
	debug     bool
	// How much models may take of the disk before that is warned of, in bytes.
	modelsMax, cacheMax uint64
	// What is left free on each GPU, and what other programs may hold of one
	// before it counts as busy, in MiB.
	VRAMReserveMB, BusyIgnoreMB int64
	flags                       remembered // What this command line says: that is kept for the next start.
	remembered
}

// remembered are the settings that a start keeps for the next when they come
// as flags.
type remembered struct {
	Name      string `json:"name,omitempty"`
	Lend      string `json:"lend,omitempty"`
	LendMB    int64  `json:"lend_mb,omitempty"`
	LendCores int    `json:"lend_cores,omitempty"`
	ReserveMB int64  `json:"reserve_mb,omitempty"`
	Sandbox   string `json:"sandbox,omitempty"`
	P2PPort   int    `json:"p2p_port,omitempty"`
	// AutoPause: what runs on a GPU is unloaded while other programs use it.
	AutoPause toggle `json:"auto_pause,omitempty"`
	// Deadlines are those of the door.
	Deadlines deadlines `json:"deadlines,omitzero"`
}

// known are the variables of this release, reserved those that are kept for later ones.
var (
	known = []string{"RELAY_STATE_DIR", "RELAY_MODELS_DIR", "RELAY_LISTEN", "RELAY_P2P_LISTEN", "RELAY_LLAMA_BIN", "RELAY_LEND_MB",
		"RELAY_VRAM_RESERVE_MB", "RELAY_PARALLEL_SLOTS", "RELAY_API_KEY", "RELAY_CACHE_MAX", "RELAY_MODELS_MAX", "RELAY_SANDBOX",
		"RELAY_BUSY_IGNORE_MB", "RELAY_TLS", "RELAY_DEBUG", "RELAY_DEADLINES"}
	reserved = []string{"RELAY_PIPELINE_DEPTH", "RELAY_V1_RATE_LIMIT", "RELAY_ADVERTISE_LAN"}
)

// warnUnused names variables that look like settings and change nothing.
func warnUnused(environ []string, w io.Writer) {
	for _, entry := range environ {
		switch name, value, _ := strings.Cut(entry, "="); {
		case !strings.HasPrefix(name, "RELAY_") || slices.Contains(known, name):
		case !slices.Contains(reserved, name):
			fmt.Fprintf(w, "relay: warning: %s is not a setting of relay\n", name)
		case value != "":
			fmt.Fprintf(w, "relay: warning: %s has no effect in this version\n", name)
		}
	}
}

// stateDir is where this machine's peer keeps everything.
func stateDir() (string, error) {
	if dir := os.Getenv("RELAY_STATE_DIR"); dir != "" {
		return dir, nil
	}
	switch runtime.GOOS {
	case "windows", "darwin":
		dir, err := os.UserConfigDir()
		if err != nil {
			return "", fmt.Errorf("the folder for relay's state cannot be told: %w (set RELAY_STATE_DIR)", err)
		}
		return filepath.Join(dir, "relay"), nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "relay"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("the folder for relay's state cannot be told: %w (set RELAY_STATE_DIR)", err)
	}
	return filepath.Join(home, ".local", "state", "relay"), nil
}

// fromEnvironment fills in what flags left open.
func (s *settings) fromEnvironment() error {
	var env remembered
	var err error
	if s.stateDir, err = stateDir(); err != nil {
		return err
	}
	s.tls = os.Getenv("RELAY_TLS")
	s.modelsDir = os.Getenv("RELAY_MODELS_DIR")
	s.engineBin = os.Getenv("RELAY_LLAMA_BIN")
	s.apiKey = strings.TrimRight(os.Getenv("RELAY_API_KEY"), "\r\n") // As a file of its own has it.
	if err := keys.CheckLocal(s.apiKey); err != nil {
		return &usageError{err.Error()}
	}
	s.debug = os.Getenv("RELAY_DEBUG") != ""
	if s.listen == "" {
		s.listen = os.Getenv("RELAY_LISTEN")
	}
	if s.listen == "" {
		s.listen = defaultListen
	}
	if len(s.p2pListen) == 0 {
		if text := os.Getenv("RELAY_P2P_LISTEN"); text != "" {
			s.p2pListen = strings.Split(text, ",")
		}
	}
	env.Sandbox = os.Getenv("RELAY_SANDBOX")
	if env.Deadlines, err = deadlinesFromEnvironment(); err != nil {
		return err
	}
	if env.LendMB, err = number("RELAY_LEND_MB"); err != nil {
		return err
	}
	if s.VRAMReserveMB, err = numberOr("RELAY_VRAM_RESERVE_MB", defaultVRAMReserveMB); err != nil {
		return err
	}
	if s.BusyIgnoreMB, err = numberOr("RELAY_BUSY_IGNORE_MB", defaultBusyIgnoreMB); err != nil {
		return err
	}
	if s.modelsMax, err = diskCap("RELAY_MODELS_MAX"); err != nil {
		return err
	}
	if s.cacheMax, err = diskCap("RELAY_CACHE_MAX"); err != nil {
		return err
	}
	s.remembered = s.flags.over(env)
	slots, err := number("RELAY_PARALLEL_SLOTS")
	s.slots = int(slots)
	return err
}

// diskCap is a size in the environment; 0 where there is none.
func diskCap(name string) (uint64, error) {
	text := os.Getenv(name)
	if text == "" {
		return 0, nil
	}
	return parseCap(name, text)
}

func number(name string) (int64, error) {
	text := os.Getenv(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > maxMB {
		return 0, &usageError{fmt.Sprintf("%s=%s: it takes a whole number from 1 to %d", name, text, maxMB)}
	}
	return n, nil
}

// numberOr is a number in the environment that may be 0, or what counts where
// none is there.
func numberOr(name string, otherwise int64) (int64, error) {
	text := os.Getenv(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxMB {
		return 0, &usageError{fmt.Sprintf("%s=%s: it takes a whole number from 0 to %d", name, text, maxMB)}
	}
	return n, nil
}

// over fills in what is not said from what counts less.
func (r remembered) over(earlier remembered) remembered {
	if r.Name == "" {
		r.Name = earlier.Name
	}
	// The two ways to limit what is lent go together: the newer one counts.
	if r.Lend == "" && r.LendMB == 0 {
		r.Lend, r.LendMB = earlier.Lend, earlier.LendMB
	}
	if r.LendCores == 0 {
		r.LendCores = earlier.LendCores
	}
	if r.ReserveMB == 0 {
		r.ReserveMB = earlier.ReserveMB
	}
	if r.Sandbox == "" {
		r.Sandbox = earlier.Sandbox
	}
	if r.AutoPause == "" {
		r.AutoPause = earlier.AutoPause
	}
	r.Deadlines = r.Deadlines.over(earlier.Deadlines)
	r.P2PPort = earlier.P2PPort
	return r
}

// checkLendFlags refuses limits of what is lent that no machine can keep to. 0 stands
// for what was not said, so it is not taken for a limit.
func checkLendFlags(cmd *cobra.Command) error {
	for _, name := range []string{"lend-mb", "lend-cores", "reserve-mb"} {
		flag := cmd.Flags().Lookup(name)
		if !flag.Changed {
			continue
		}
		n, err := strconv.ParseInt(flag.Value.String(), 10, 64)
		if err != nil || n < 1 {
			return &usageError{fmt.Sprintf("--%s %s: it takes a number of 1 or more (--lend none lends nothing, --lend auto what is free less a reserve)", name, flag.Value)}
		}
		if cores := runtime.GOMAXPROCS(0); name == "lend-cores" && n > int64(cores) {
			return &usageError{fmt.Sprintf("--lend-cores %d: relay may use %s here", n, plural(cores, "core"))}
		}
	}
	return nil
}

// validate names the setting at fault.
func (s *settings) validate() error {
	if s.Name != "" {
		if err := membership.CheckName(s.Name); err != nil {
			return &usageError{fmt.Sprintf("--name %q: %v", s.Name, err)}
		}
	}
	switch {
	case s.tls != "" && s.tls != "off": // Whoever asks for TLS must not get a door without it.
		return &usageError{fmt.Sprintf("RELAY_TLS=%s: this version speaks plain HTTP only; unset it, and put a proxy with TLS before the door where the network is not trusted", s.tls)}
	case s.Lend != "" && s.Lend != "auto" && s.Lend != "none":
		return &usageError{fmt.Sprintf("--lend %s: it takes auto or none", s.Lend)}
	case s.LendMB > maxMB || s.ReserveMB > maxMB:
		return &usageError{fmt.Sprintf("--lend-mb and --reserve-mb take %d at most", maxMB)}
	case s.slots > 64:
		return &usageError{"RELAY_PARALLEL_SLOTS takes 1 to 64"}
	}
	switch llama.SandboxMode(s.Sandbox) {
	case "", llama.SandboxAuto, llama.SandboxRequire, llama.SandboxOff:
	default:
		return &usageError{fmt.Sprintf("--sandbox %s: it takes auto, require or off", s.Sandbox)}
	}
	for _, text := range s.p2pListen {
		if err := checkP2PListen(text); err != nil {
			return err
		}
	}
	return checkListen(s.listen)
}

// hostName is what this machine calls itself, as a peer's name.
func hostName() string {
	name, err := os.Hostname()
	if err == nil {
		name, _, _ = strings.Cut(name, ".")
	}
	if err != nil || membership.CheckName(name) != nil {
		return "peer"
	}
	return name
}
