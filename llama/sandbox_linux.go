package llama

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// leastLandlock is the oldest Landlock that keeps files from being changed: the
// versions before it let them be truncated.
const leastLandlock = 3

// signalLandlock is the oldest Landlock that keeps signals from other programs.
const signalLandlock = 6

func probeSandbox() SandboxStatus {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		abi = 0
	}
	return describeSandbox(abi, seccompWorks(), policy{})
}

// describeSandbox is the status of a sandbox with that much in force. Landlock
// knows of signals only since its version 6 and of limits and turns not at all:
// the filter keeps these, and Landlock keeps what is in /proc.
func describeSandbox(abi int, seccomp bool, p policy) SandboxStatus {
	s := SandboxStatus{Files: abi >= leastLandlock, Network: seccomp && (p.Port == 0 || p.Guarded), Processes: seccomp && abi > 0}
	others := "signal and slow down this user's other programs"
	if abi >= signalLandlock {
		others = "slow down this user's other programs"
	}
	port := p.Port != 0 && !p.Guarded
	switch {
	case s.Full() && p.Guarded:
		s.Text = fmt.Sprintf("engines read only their own files, open connections to relay alone and reach no other program (Landlock %d, seccomp)", abi)
	case s.Full():
		s.Text = fmt.Sprintf("engines read only their own files, open no connections and reach no other program (Landlock %d, seccomp)", abi)
	case s.Files && port && seccomp:
		s.Text = fmt.Sprintf("engines read only their own files and reach no other program but by their ports (Landlock %d, seccomp), and can listen on more that the kernel chooses", abi)
	case s.Files && port:
		s.Text = fmt.Sprintf("engines read only their own files (Landlock %d) and listen on one port, but can %s", abi, others)
	case s.Files:
		s.Text = fmt.Sprintf("engines read only their own files (Landlock %d), but can open connections and %s: this kernel has no seccomp filters for them",
			abi, others)
	case s.Network && abi > 0:
		s.Text = fmt.Sprintf("engines open no connections and reach no other program (seccomp), but files are guarded only in part: this kernel has Landlock %d, %d is needed",
			abi, leastLandlock)
	case s.Network:
		s.Text = "engines open no connections and signal no other program (seccomp), but can read this user's files and look into its programs: this kernel has no Landlock"
	default:
		s.Text = "engines run with this user's rights: this kernel has neither Landlock nor seccomp filters"
	}
	return s
}

// confineThread confines the calling thread and what it becomes, for good; the
// caller has locked it to its goroutine. The other threads of the process stay
// free: taking them along would need them all to stop, which can take seconds on
// a busy machine, and they end when this one becomes the engine. What is in force
// is in the status, even with an error.
func confineThread(p policy) (SandboxStatus, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return describeSandbox(0, false, p), fmt.Errorf("no_new_privs: %w", err)
	}
	if p.GPU {
		// Landlock knows the process's folder in /proc as long as that is in the
		// kernel's cache. Open, it stays there; the engine inherits it.
		_, _ = unix.Open("/proc/self", unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	abi, err := restrictFiles(p)
	if err != nil {
		err = fmt.Errorf("landlock: %w", err)
	}
	err = errors.Join(err, dropCapabilities(p))
	err2 := restrictSyscalls(p.Port != 0)
	if err2 != nil {
		err2 = fmt.Errorf("seccomp: %w", err2)
	}
	return describeSandbox(abi, err2 == nil, p), errors.Join(err, err2)
}

// restrictFiles leaves the calling thread what p allows of files and ports, as
// far as this kernel can. It returns the version of Landlock in force, 0 for
// none.
func restrictFiles(p policy) (int, error) {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0, nil // the status says that there is none
	}
	fd, flags, err := landlock.V11.BestEffort().NewRulesetFD(p.rules()...)
	if err != nil {
		return 0, err
	}
	if fd < 0 {
		return 0, nil
	}
	defer unix.Close(fd)
	if err := ll.LandlockRestrictSelf(fd, flags); err != nil {
		return 0, err
	}
	return abi, nil
}

// rules are the only accesses to files and ports that p leaves.
func (p policy) rules() []landlock.Rule {
	const (
		read   = ll.AccessFSReadFile
		list   = ll.AccessFSReadDir
		run    = ll.AccessFSExecute
		change = ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSMakeReg | ll.AccessFSMakeDir | ll.AccessFSMakeSock |
			ll.AccessFSRemoveFile | ll.AccessFSRemoveDir
	)
	var rules []landlock.Rule
	may := func(access landlock.AccessFSSet, paths ...string) {
		for _, path := range paths {
			allowed := access
			// Rights on folders mean nothing on a file, and are refused there.
			if info, err := os.Stat(path); err == nil && !info.IsDir() {
				allowed &= read | run | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev
			}
			rules = append(rules, landlock.PathAccess(allowed, path).IgnoreIfMissing())
		}
	}
	may(read|run, p.Program)
	may(read, p.Read...)
	may(read|list|change, p.Write...)
	if p.ReadOnly != "" {
		may(read|list, p.ReadOnly)
	}

	interpreter, libraries := p.libraries()
	if interpreter != "" {
		may(read|run, interpreter)
	}
	may(read|list, libraries...)
	// The program's own libraries lie beside it, in a folder that may hold
	// anything: they are opened one by one.
	dir := filepath.Dir(p.Program)
	if own := librariesIn(dir); own != nil {
		may(list, dir) // some builds look for their parts by listing it
		may(read, own...)
	}
	may(read, "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/sys/vm/overcommit_memory", "/etc/localtime")
	may(read|list, "/sys/devices/system", "/usr/share/zoneinfo")
	may(read|ll.AccessFSWriteFile, "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
	if p.GPU {
		const device = read | list | ll.AccessFSWriteFile | ll.AccessFSIoctlDev
		may(device, gpuDevices("/dev")...)
		// Of /proc and /sys what is about itself, the machine and its devices.
		may(read|list, "/proc/self", "/proc/driver", "/proc/devices", "/proc/modules", "/proc/version", "/proc/sys",
			"/sys/devices", "/sys/class", "/sys/bus", "/sys/dev", "/sys/module", "/sys/firmware/devicetree", "/sys/kernel/mm",
			"/etc/vulkan", "/etc/OpenCL", "/usr/share/vulkan", "/usr/share/glvnd", "/usr/share/nvidia",
			"/usr/share/drirc.d", "/usr/share/libdrm", "/etc/drirc", "/run/opengl-driver")
	}
	if p.Port != 0 {
		rules = append(rules, landlock.BindTCP(uint16(p.Port)))
		for _, port := range p.Connect {
			rules = append(rules, landlock.ConnectTCP(uint16(port)))
		}
	}
	return rules
}

// libraries are the program's interpreter and the folders and files in which
// it may look for shared libraries.
func (p policy) libraries() (interpreter string, paths []string) {
	paths = []string{
		"/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64",
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload",
		"/usr/local/cuda", "/opt/cuda", "/opt/rocm", "/opt/intel", "/nix/store", "/gnu/store", "/run/current-system",
	}
	more := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	if f, err := elf.Open(p.Program); err == nil {
		for _, s := range f.Progs {
			if s.Type == elf.PT_INTERP && s.Filesz < 4096 {
				data := make([]byte, s.Filesz)
				if _, err := s.ReadAt(data, 0); err == nil {
					interpreter = strings.TrimRight(string(data), "\x00")
				}
			}
		}
		for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
			values, err := f.DynString(tag)
			if err != nil {
				continue // none
			}
			for _, v := range values {
				v = strings.NewReplacer("$ORIGIN", filepath.Dir(p.Program), "${ORIGIN}", filepath.Dir(p.Program)).Replace(v)
				more = append(more, filepath.SplitList(v)...)
			}
		}
		_ = f.Close() // it was only read
	}
	for _, dir := range more {
		dir = filepath.Clean(dir)
		// A folder around the user's files is not a folder of libraries, and
		// the program's own folder is opened file by file.
		if !filepath.IsAbs(dir) || dir == filepath.Dir(p.Program) || p.Home != "" && within(p.Home, dir) {
			continue
		}
		paths = append(paths, dir)
	}
	return interpreter, paths
}

// within says whether path is dir or inside it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// librariesIn are the shared libraries in a folder.
func librariesIn(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var list []string
	for _, e := range entries {
		name := e.Name()
		if e.Type()&fs.ModeDir == 0 && (strings.HasSuffix(name, ".so") || strings.Contains(name, ".so.")) {
			list = append(list, filepath.Join(dir, name))
		}
	}
	return list
}
