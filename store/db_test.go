package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dgraph-io/badger/v4"
)

// sentence checks what every refusal owes to people: the reason, the thing at
// hand, one line, lower-case, no Go.
func sentence(t *testing.T, err error, want error, reason string, mentions ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if !errors.Is(err, want) || reasonOf(err) != reason {
		t.Errorf("%v: reason %q, want %q", err, reasonOf(err), reason)
	}
	text := err.Error()
	if strings.Contains(text, "\n") || strings.Contains(text, "%!") || strings.Contains(text, "*fs.") {
		t.Errorf("not one plain sentence: %q", text)
	}
	for _, m := range mentions {
		if !strings.Contains(text, m) {
			t.Errorf("%q does not mention %q", text, m)
		}
	}
}

func TestOpenIsForOneProcess(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, nil)
	sentence(t, err, ErrLocked, "locked", dir)
	out, err := child(t, "open", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(out), ErrLocked.Error()) || !strings.Contains(string(out), dir) {
		t.Errorf("another process got %q", out)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err = child(t, "open", dir).Output(); err != nil || string(out) != "<nil>\n" {
		t.Errorf("after Close another process got %q %v", out, err)
	}
	// That child left without Close: a dead process holds nothing.
	if d, err = Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenUnusable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(filepath.Join(file, "db"), nil)
	sentence(t, err, ErrUnusable, "state_unusable", file, "RELAY_STATE_DIR")

	garbage := t.TempDir()
	if err := os.WriteFile(filepath.Join(garbage, badger.ManifestFilename), []byte("not a manifest at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(garbage, nil)
	sentence(t, err, ErrUnusable, "state_unusable", garbage)

	foreign := t.TempDir()
	db, err := badger.Open(badgerOptions(foreign, slog.New(slog.DiscardHandler)).WithExternalMagic(magic + 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Open(foreign, nil)
	sentence(t, err, ErrUnusable, "state_unusable", foreign, "newer relay")
}

func TestOpenRefusesNewerSchema(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	set := func(value []byte) {
		t.Helper()
		if err := d.Space("store").Apply([]Write{{Key: []byte("schema"), Value: value}}); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	set(binary.BigEndian.AppendUint32(nil, schema+1))
	_, err = Open(dir, nil)
	sentence(t, err, ErrUnusable, "state_unusable", dir, "newer")
	// It did not stay locked, so a newer relay could have it now.
	db, err := badger.Open(badgerOptions(dir, slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	d = &DB{dir: dir, badger: db, free: DiskFree}
	set([]byte("?"))
	_, err = Open(dir, nil)
	sentence(t, err, ErrUnusable, "state_unusable", dir)
}

func TestNearlyFullDisk(t *testing.T) {
	full := false
	free := func(string) (uint64, uint64, error) {
		if full {
			return minFree - 1, 1 << 40, nil
		}
		return minFree, 1 << 40, nil
	}
	dir := filepath.Join(t.TempDir(), "db")
	full = true
	_, err := open(dir, nil, free)
	sentence(t, err, ErrDiskFull, "disk_full", dir, "64.0 MiB")
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was made all the same")
	}
	full = false
	d, err := open(dir, nil, free)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s := d.Space("full")
	if err := s.Apply([]Write{{Key: []byte("before"), Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	full = true
	err = s.Apply([]Write{{Key: []byte("meanwhile"), Value: []byte("1")}})
	sentence(t, err, ErrDiskFull, "disk_full", dir)
	if _, found, err := s.Get([]byte("before")); err != nil || !found {
		t.Errorf("reading ended with the room: %v %v", found, err)
	}
	full = false
	if err := s.Apply([]Write{{Key: []byte("after"), Value: []byte("1")}}); err != nil {
		t.Errorf("writing did not go on with room: %v", err)
	}
	if _, found, _ := s.Get([]byte("meanwhile")); found {
		t.Error("a refused write is there")
	}
}

func TestCloseWaitsAndIsFinal(t *testing.T) {
	d, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := d.Space("close")
	if err := s.Apply([]Write{{Key: []byte("k"), Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	scanning, goOn := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.Scan(nil, func(_, _ []byte) error {
			close(scanning)
			<-goOn
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-scanning
	closed := make(chan error)
	go func() { closed <- d.Close() }()
	// Closing has begun when new calls are refused; the old one still runs.
	for {
		if _, _, err := s.Get([]byte("k")); errors.Is(err, ErrClosed) {
			break
		}
		runtime.Gosched()
	}
	select {
	case err := <-closed:
		t.Fatalf("closed under a running scan: %v", err)
	default:
	}
	close(goOn)
	wg.Wait()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if err := s.Apply([]Write{{Key: []byte("k")}}); !errors.Is(err, ErrClosed) {
		t.Errorf("apply after close: %v", err)
	}
	if err := s.Scan(nil, func(_, _ []byte) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("scan after close: %v", err)
	}
	d.collect() // must not panic
}

func TestRunEndsWithItsContext(t *testing.T) {
	d := openTest(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	d.collect()
}

func TestLoggerPassesOnWarningsOnly(t *testing.T) {
	var out bytes.Buffer
	l := badgerLog{slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	l.Infof("chatter %d", 1)
	l.Debugf("chatter %d", 2)
	if out.Len() > 0 {
		t.Errorf("logged %q", out.String())
	}
	l.Warningf("odd %d\n", 3)
	l.Errorf("bad %d", 4)
	for _, want := range []string{"level=WARN", `msg="badger: odd 3"`, "level=ERROR", `msg="badger: bad 4"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
}

// TestOptionsKeepThePromises: every commit is synced, and no value that Apply
// takes goes to the value log, which would have to be collected.
func TestOptionsKeepThePromises(t *testing.T) {
	opt := badgerOptions("", slog.New(slog.DiscardHandler))
	if !opt.SyncWrites {
		t.Error("commits are not synced")
	}
	if opt.ValueThreshold < MaxBytes {
		t.Errorf("values above %d bytes go to the value log, Apply takes %d", opt.ValueThreshold, MaxBytes)
	}
}
