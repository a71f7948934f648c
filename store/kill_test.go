package store

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// acknowledgeForever writes pairs of keys from several goroutines and says so on
// its standard output after each Apply returned, until it is killed.
func acknowledgeForever(dir, round string) {
	d, err := Open(dir, nil)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	space := d.Space("kill")
	for g := range 4 {
		go func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("%s.%d.%d", round, g, n)
				err := space.Apply([]Write{
					{Key: []byte("one/" + id), Value: []byte(id)},
					{Key: []byte("two/" + id), Value: []byte(id)},
				})
				if err != nil {
					fmt.Println("error", err)
					return
				}
				// One write of one line: lines of several goroutines do not mix.
				os.Stdout.WriteString("ack " + id + "\n")
			}
		}()
	}
	select {}
}

// TestKillKeepsWhatWasAcknowledged kills a writing process again and again, at
// any moment, and looks for all that it ever acknowledged.
func TestKillKeepsWhatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	acked := map[string]bool{}
	for round := range 24 {
		cmd := child(t, "acknowledge", dir, fmt.Sprintf("STORE_TEST_ROUND=%d", round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := 1 + rand.IntN(80)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			id, ok := strings.CutPrefix(lines.Text(), "ack ")
			if !ok {
				t.Fatalf("round %d: %s", round, lines.Text())
			}
			acked[id] = true
			if n == after {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child ended by itself")
		}
		d, err := Open(dir, nil)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		found := map[string]int{}
		for half, prefix := range []string{"one/", "two/"} {
			err := d.Space("kill").Scan([]byte(prefix), func(key, value []byte) error {
				id := strings.TrimPrefix(string(key), prefix)
				if id != string(value) {
					t.Errorf("round %d: %s holds %q", round, key, value)
				}
				found[id] += 1 << half
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for id := range acked {
			if found[id] == 0 {
				t.Errorf("round %d: %s was acknowledged and is lost", round, id)
			}
		}
		for id, halves := range found {
			if halves != 3 {
				t.Errorf("round %d: half of %s is there", round, id)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(acked) < 24 {
		t.Fatalf("only %d writes were acknowledged", len(acked))
	}
	t.Logf("%d acknowledged writes in 24 rounds", len(acked))
}

// reopenForever opens, writes and closes until it is killed, and says each time
// what is on disk.
func reopenForever(dir string) {
	for n := uint64(1); ; n++ {
		d, err := Open(dir, nil)
		if err != nil {
			fmt.Println("error", err)
			return
		}
		space := d.Space("reopen")
		// Large enough that tables are flushed and logs change now and then.
		writes := []Write{{Key: []byte("large"), Value: make([]byte, 900<<10)}, {Key: []byte("count"), Value: fmt.Append(nil, n)}}
		for range 10 {
			if err := space.Apply(writes); err != nil {
				fmt.Println("error", err)
				return
			}
		}
		os.Stdout.WriteString("open\n")
		if err := d.Close(); err != nil {
			fmt.Println("error", err)
			return
		}
		os.Stdout.WriteString("closed\n")
	}
}

// TestKillWhileOpeningAndClosing kills a process while it opens, flushes or
// closes the database: it must open again, with what was acknowledged.
func TestKillWhileOpeningAndClosing(t *testing.T) {
	dir := t.TempDir()
	for round := range 16 {
		cmd := child(t, "reopen", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after, acked := rand.IntN(6), 0
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			switch lines.Text() {
			case "open":
				acked++
			case "closed":
			default:
				t.Fatalf("round %d: %s", round, lines.Text())
			}
			if n == after {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child ended by itself")
		}
		d, err := Open(dir, nil)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		value, found, err := d.Space("reopen").Get([]byte("count"))
		var count int
		fmt.Sscan(string(value), &count)
		// The next one may have been written and not acknowledged.
		if err != nil || !found || count < acked || count > acked+1 {
			t.Errorf("round %d: count %d %v %v, %d were acknowledged", round, count, found, err, acked)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEmptyLogFiles is what a kill at the wrong moment leaves: log files that
// were made and not filled, or emptied and not deleted.
func TestEmptyLogFiles(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Space("s").Apply([]Write{{Key: []byte("k"), Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00000.mem", "00007.mem", "00009.mem", "000011.vlog", "000012.vlog"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		d, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if v, found, err := d.Space("s").Get([]byte("k")); err != nil || !found || string(v) != "v" {
			t.Errorf("%q %v %v", v, found, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
