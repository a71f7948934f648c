package store

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// holdLock takes the lock of a state folder and keeps it until it is killed.
func holdLock(dir string) {
	if _, err := LockDir(dir); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held")
	io.Copy(io.Discard, os.Stdin)
	select {}
}

func TestLockDirMakesTheTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "state")
	lock, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	for _, sub := range []string{"", "db", "models", "engines", "rpc", "log", "run"} {
		info, err := os.Stat(filepath.Join(dir, sub))
		if err != nil {
			t.Error(err)
			continue
		}
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
			t.Errorf("%q is open to others: %v", sub, info.Mode())
		}
	}
	entries, err := os.ReadDir(lock.Tree.Run())
	if err != nil || len(entries) != 1 {
		t.Errorf("run holds %v, want the lock alone (%v)", entries, err)
	}
	for path, want := range map[string]string{
		lock.Tree.IdentityKey(): "identity.key", lock.Tree.MeshKey(): "mesh.key", lock.Tree.DefaultKey(): "default.key",
		lock.Tree.ControlSocket(): "run/control.sock", lock.Tree.Lock(): "run/lock",
	} {
		if path != filepath.Join(dir, want) {
			t.Errorf("%s is not at %s", path, want)
		}
	}
}

func TestLockIsForOneProcessAndDiesWithIt(t *testing.T) {
	dir := t.TempDir()
	if pid, held, err := Holder(filepath.Join(dir, "nothing")); err != nil || held || pid != 0 {
		t.Errorf("a folder that is not there: %d %v %v", pid, held, err)
	}
	cmd := child(t, "hold", dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "held\n" {
		t.Fatalf("the child says %q %v", line, err)
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	_, err = LockDir(dir)
	sentence(t, err, ErrLocked, "locked", dir, pid, "relay down")
	if got, held, err := Holder(dir); err != nil || !held || got != cmd.Process.Pid {
		t.Errorf("holder: %d %v %v, want %s", got, held, err, pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	// The file is still there, with the dead process's id in it.
	if got := readPID(Tree{dir}.Lock()); got != cmd.Process.Pid {
		t.Errorf("the lock file says %d", got)
	}
	if _, held, err := Holder(dir); err != nil || held {
		t.Errorf("a dead process holds the lock: %v", err)
	}
	lock, err := LockDir(dir)
	if err != nil {
		t.Fatalf("a dead process blocks: %v", err)
	}
	if got, held, err := Holder(dir); err != nil || !held || got != os.Getpid() {
		t.Errorf("holder: %d %v %v, want this process", got, held, err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if got, held, _ := Holder(dir); held || readPID(Tree{dir}.Lock()) != 0 {
		t.Errorf("after Release %d holds it", got)
	}
	lock, err = LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// TestHolderDoesNotDisturb asks who holds the lock, over and over, while it is
// taken and given back: the question must never make LockDir fail.
func TestHolderDoesNotDisturb(t *testing.T) {
	dir := t.TempDir()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, _, err := Holder(dir); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 50 {
		lock, err := LockDir(dir)
		if err != nil {
			t.Error(err)
			break
		}
		if err := lock.Release(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-done
}

func TestLockDirUnusable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := LockDir(file)
	sentence(t, err, ErrUnusable, "state_unusable", file, "RELAY_STATE_DIR")
	_, err = LockDir(filepath.Join(file, "state"))
	sentence(t, err, ErrUnusable, "state_unusable", file)
	_, err = LockDir("")
	sentence(t, err, ErrUnusable, "state_unusable", "RELAY_STATE_DIR")
	if runtime.GOOS == "linux" {
		// /proc takes no files, from root either.
		_, err = LockDir("/proc/relay")
		sentence(t, err, ErrUnusable, "state_unusable", "/proc/relay")
	}
}

func TestGarbageInTheLockFile(t *testing.T) {
	dir := t.TempDir()
	tree := Tree{dir}
	if err := tree.Create(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "x", " not a pid\n", " -5\n", " 99999999999999999999\n", "\x00\x00\x00"} {
		if err := os.WriteFile(tree.Lock(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if pid := readPID(tree.Lock()); pid != 0 {
			t.Errorf("%q is read as %d", text, pid)
		}
	}
	lock, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := readPID(tree.Lock()); got != os.Getpid() {
		t.Errorf("pid %d over garbage", got)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}
