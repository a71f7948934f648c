package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"relay/api"
)

// Flags over environment over what earlier flags said; only flags are kept.
func TestSettingsThatCount(t *testing.T) {
	for name, test := range map[string]struct {
		flags, kept     remembered
		env             map[string]string
		counts, keptNow remembered
	}{
		"a flag": {remembered{LendMB: 5}, remembered{}, nil, remembered{LendMB: 5}, remembered{LendMB: 5}},
		"the environment": {remembered{}, remembered{}, map[string]string{"RELAY_LEND_MB": "7", "RELAY_VRAM_RESERVE_MB": "9", "RELAY_SANDBOX": "off"},
			remembered{LendMB: 7, Sandbox: "off"}, remembered{}},
		"what was kept": {remembered{}, remembered{Lend: "none", LendCores: 3, P2PPort: 8421}, nil,
			remembered{Lend: "none", LendCores: 3, P2PPort: 8421}, remembered{Lend: "none", LendCores: 3, P2PPort: 8421}},
		"a pause that was kept": {remembered{}, remembered{AutoPause: toggleOn}, nil, remembered{AutoPause: toggleOn}, remembered{AutoPause: toggleOn}},
		"no pause any more":     {remembered{AutoPause: toggleOff}, remembered{AutoPause: toggleOn}, nil, remembered{AutoPause: toggleOff}, remembered{AutoPause: toggleOff}},
		"deadlines from everywhere": {remembered{Deadlines: deadlines{Dial: time.Second}}, remembered{Deadlines: deadlines{Dial: time.Minute, Total: time.Hour}},
			map[string]string{"RELAY_DEADLINES": "first-token=3m, total=2h"},
			remembered{Deadlines: deadlines{Dial: time.Second, FirstToken: 3 * time.Minute, Total: 2 * time.Hour}},
			remembered{Deadlines: deadlines{Dial: time.Second, Total: time.Hour}}},
		"auto over the environment": {remembered{Lend: "auto"}, remembered{}, map[string]string{"RELAY_LEND_MB": "7"},
			remembered{Lend: "auto"}, remembered{Lend: "auto"}},
		"auto over what was kept": {remembered{Lend: "auto"}, remembered{LendMB: 3}, nil, remembered{Lend: "auto"}, remembered{Lend: "auto"}},
		"the environment over what was kept": {remembered{}, remembered{Lend: "none", ReserveMB: 4}, map[string]string{"RELAY_LEND_MB": "7"},
			remembered{LendMB: 7, ReserveMB: 4}, remembered{Lend: "none", ReserveMB: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"RELAY_LEND_MB", "RELAY_VRAM_RESERVE_MB", "RELAY_SANDBOX", "RELAY_DEADLINES"} {
				t.Setenv(variable, test.env[variable])
			}
			dir := t.TempDir()
			t.Setenv("RELAY_STATE_DIR", dir)
			m := openTestMachine(t, settings{stateDir: dir})
			if err := m.save(keySettings, test.kept); err != nil {
				t.Fatal(err)
			}
			m.close()
			s := settings{flags: test.flags}
			if err := s.fromEnvironment(); err != nil {
				t.Fatal(err)
			}
			m = openTestMachine(t, s)
			defer m.close()
			test.counts.Name = hostName()
			if m.remembered != test.counts {
				t.Errorf("%+v, want %+v", m.remembered, test.counts)
			}
			var kept remembered
			if err := m.load(keySettings, &kept); err != nil || kept != test.keptNow {
				t.Errorf("kept %+v, want %+v: %v", kept, test.keptNow, err)
			}
		})
	}
}

func TestSizesAreBounded(t *testing.T) {
	var usage *usageError
	for _, r := range []remembered{{LendMB: 1 << 44}, {ReserveMB: 1 << 44}} {
		s := settings{remembered: r, listen: defaultListen}
		if err := s.validate(); !errors.As(err, &usage) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	m := machine{settings: settings{remembered: remembered{LendMB: maxMB}}}
	if got := m.lends().Bytes; got != 1<<60 {
		t.Errorf("%d bytes", got)
	}
}

// What is not typed right is refused by its name; 0 is a number.
func TestSettingsOfGPUs(t *testing.T) {
	t.Setenv("RELAY_STATE_DIR", t.TempDir())
	for _, c := range []struct {
		reserve, ignore         string
		wantReserve, wantIgnore int64
		fault                   string
	}{
		{"", "", 512, 256, ""}, {"0", "0", 0, 0, ""}, {"1024", "64", 1024, 64, ""},
		{"-1", "", 0, 0, "RELAY_VRAM_RESERVE_MB=-1"}, {"", "much", 0, 0, "RELAY_BUSY_IGNORE_MB=much"}, {"", "1099511627777", 0, 0, "RELAY_BUSY_IGNORE_MB"},
		{"1.5", "", 0, 0, "RELAY_VRAM_RESERVE_MB=1.5"},
	} {
		t.Setenv("RELAY_VRAM_RESERVE_MB", c.reserve)
		t.Setenv("RELAY_BUSY_IGNORE_MB", c.ignore)
		var s settings
		var usage *usageError
		err := s.fromEnvironment()
		if c.fault != "" && (!errors.As(err, &usage) || !strings.Contains(err.Error(), c.fault)) ||
			c.fault == "" && (err != nil || s.VRAMReserveMB != c.wantReserve || s.BusyIgnoreMB != c.wantIgnore) {
			t.Errorf("%q %q: %d %d %v", c.reserve, c.ignore, s.VRAMReserveMB, s.BusyIgnoreMB, err)
		}
	}
}

// A limit of 0 is not silently no limit, and one of more cores than there are not
// silently all of them.
func TestLendFlags(t *testing.T) {
	for arg, says := range map[string]string{
		"--lend-mb=0":                "--lend-mb 0: it takes a number of 1 or more (--lend none lends nothing, --lend auto",
		"--lend-mb=-1":               "--lend-mb -1: it takes",
		"--lend-cores=0":             "--lend none",
		"--lend-cores=-3":            "--lend-cores -3",
		"--reserve-mb=0":             "--lend auto",
		"--lend-cores=99999":         fmt.Sprintf("--lend-cores 99999: relay may use %s here", plural(runtime.GOMAXPROCS(0), "core")),
		"--lend-cores=1":             "",
		"--lend-mb=1 --reserve-mb=1": "",
		"--lend=auto":                "",
		"":                           "",
	} {
		cmd := newUp()
		if err := cmd.ParseFlags(strings.Fields(arg)); err != nil {
			t.Error(err)
		}
		err := checkLendFlags(cmd)
		var usage *usageError
		if says == "" && err != nil || says != "" && (!errors.As(err, &usage) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %v", arg, err)
		}
	}
}

func TestAutoPauseFlag(t *testing.T) {
	for arg, want := range map[string]string{"--auto-pause": "true", "--auto-pause=true": "true", "--auto-pause=false": "false", "--auto-pause=0": "false", "": ""} {
		f := newUp().Flags()
		if err := f.Parse(strings.Fields(arg)); err != nil {
			t.Error(err)
		}
		if got := f.Lookup("auto-pause").Value.String(); got != want {
			t.Errorf("%q: %q, want %q", arg, got, want)
		}
	}
	if err := newUp().Flags().Parse([]string{"--auto-pause=maybe"}); err == nil {
		t.Error("maybe was taken")
	}
}

func TestCheckListen(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:8420": "", ":8420": "", "localhost:0": "", "[::1]:http": "", "nonsense": "not an address", "127.0.0.1": "not an address",
		"127.0.0.1:port?": "not an address", "127.0.0.1:70000": "not an address", "192.0.2.7:8420": "this machine has no address 192.0.2.7",
	} {
		err := checkListen(addr)
		var usage *usageError
		if want == "" && err != nil && !strings.Contains(addr, "::1") || want != "" && (!errors.As(err, &usage) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// Whatever is typed wrongly is said before anything is made on disk, and by
// exit code 2.
func TestUpChecksFirst(t *testing.T) {
	for _, args := range [][]string{
		{"--listen", "nonsense"}, {"--listen", "192.0.2.7:8420"}, {"--lend-mb", "99999999999999"}, {"--lend", "much"},
		{"--lend-mb", "0"}, {"--lend-cores", "0"}, {"--reserve-mb", "0"}, {"--lend-cores", "99999"},
		{"--p2p-listen", "/ip4/192.0.2.7/tcp/0"},
	} {
		dir := t.TempDir() + "/state"
		t.Setenv("RELAY_STATE_DIR", dir)
		root := newRoot()
		root.SetArgs(append([]string{"up"}, args...))
		var out strings.Builder
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(context.Background())
		var usage *usageError
		if !errors.As(err, &usage) || fileExists(dir) {
			t.Errorf("%q: %v; the folder is there: %v", args, err, fileExists(dir))
		}
	}
}

func TestDeadlinesThatAreNone(t *testing.T) {
	for text, says := range map[string]string{
		"connect=3s": "there is no deadline \"connect\"", "dial": "dial takes a time", "dial=": "dial takes a time", "dial=5": "dial takes a time",
		"total=-1s": "total takes a time", "headers=1ms": "headers takes a time", "between-tokens=9000h": "between-tokens takes a time", "": "there is no deadline",
	} {
		var d deadlines
		if err := d.Set(text); err == nil || !strings.Contains(err.Error(), says) || d != (deadlines{}) {
			t.Errorf("%q: %v, %+v", text, err, d)
		}
		if text == "" {
			continue
		}
		t.Setenv("RELAY_DEADLINES", "total=2h,"+text)
		s := settings{listen: defaultListen}
		if err := s.fromEnvironment(); err == nil || !strings.Contains(err.Error(), "RELAY_DEADLINES") || !strings.Contains(err.Error(), says) {
			t.Errorf("%q in the environment: %v", text, err)
		}
	}
	var d deadlines
	for _, text := range []string{"dial=3s", "total=2h"} {
		if err := d.Set(text); err != nil {
			t.Error(err)
		}
	}
	if d.String() != "dial=3s,total=2h0m0s" || d.ofDoor() != (api.Deadlines{Dial: 3 * time.Second, Total: 2 * time.Hour}) {
		t.Errorf("%v", &d)
	}
}

// A key in the environment that no client can send is refused before anything starts; the
// newline at the end of a file is no part of it.
func TestKeyOfTheEnvironment(t *testing.T) {
	t.Setenv("RELAY_STATE_DIR", t.TempDir())
	for key, want := range map[string]string{
		"": "", "a key\r\n": "a key", strings.Repeat("x", 256): strings.Repeat("x", 256),
		strings.Repeat("x", 257): "refused", "a key ": "refused", " a key": "refused", "a\nkey": "refused", " ": "refused",
	} {
		t.Setenv("RELAY_API_KEY", key)
		var s settings
		err := s.fromEnvironment()
		if want == "refused" {
			if !errors.As(err, new(*usageError)) || !strings.Contains(err.Error(), "RELAY_API_KEY") {
				t.Errorf("%q: %v", key, err)
			}
		} else if err != nil || s.apiKey != want {
			t.Errorf("%q: %q, %v", key, s.apiKey, err)
		}
	}
}

// TestSettingsWithoutEffect: they are warned of, and who asks for TLS gets no door that has
// none.
func TestSettingsWithoutEffect(t *testing.T) {
	var w strings.Builder
	warnUnused([]string{"HOME=/", "RELAY_LISTEN=x", "RELAY_TLS=off", "RELAY_V1_RATE_LIMIT=5", "RELAY_ADVERTISE_LAN=", "RELAY_LISTTEN=y"}, &w)
	if want := "relay: warning: RELAY_V1_RATE_LIMIT has no effect in this version\nrelay: warning: RELAY_LISTTEN is not a setting of relay\n"; w.String() != want {
		t.Errorf("%q, want %q", w.String(), want)
	}
	t.Setenv("RELAY_STATE_DIR", t.TempDir())
	for value, refused := range map[string]bool{"": false, "off": false, "on": true, "auto": true, "/etc/cert.pem": true} {
		t.Setenv("RELAY_TLS", value)
		s := new(settings)
		if err := s.fromEnvironment(); err != nil {
			t.Fatal(err)
		}
		err := s.validate()
		if usage := (*usageError)(nil); errors.As(err, &usage) != refused || refused && !strings.Contains(err.Error(), "plain HTTP") {
			t.Errorf("RELAY_TLS=%s: %v", value, err)
		}
	}
}
