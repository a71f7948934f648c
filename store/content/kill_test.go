package content

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"relay/store"
)

// killLayout has enough leaves to be killed many times between them.
var killLayout = layout{chunk: 4096, links: 16}

// openForKills opens both sides of the kill test in one database: the one who
// holds the file and the one who pulls it.
func openForKills(dir string) (d *store.DB, from, to *Store, err error) {
	d, err = store.Open(filepath.Join(dir, "db"), nil)
	if err != nil {
		return nil, nil, nil, err
	}
	side := func(name string) *Store {
		if err != nil {
			return nil
		}
		var s *Store
		s, err = New(Options{
			Space: d.Space(name), Dir: filepath.Join(dir, name), layout: killLayout,
			commitBytes: 50 * 4096, commitEvery: 20 * time.Millisecond,
		})
		return s
	}
	from, to = side("holder"), side("models")
	return d, from, to, err
}

// pullUntilKilled is the process that is killed: it pulls the one content that
// the holder has, and says on its standard output what was sent to it.
func pullUntilKilled(dir string) {
	err := func() error {
		_, from, to, err := openForKills(dir)
		if err != nil {
			return err
		}
		held := from.List()[0]
		p := &peer{from: from}
		p.after = func(int) {
			n, _ := p.sent()
			os.Stdout.WriteString(fmt.Sprintf("sent %d\n", n))
		}
		_, err = pullFrom(context.Background(), to, held.CID, held.Bytes, "m", p, nil)
		return err
	}()
	fmt.Println("end", err)
}

// TestKillWhilePulling kills a pulling process with SIGKILL, again and again, at
// any moment, until a last one comes to the end.
func TestKillWhilePulling(t *testing.T) {
	dir := t.TempDir()
	const leaves = 700
	data := randomBytes(1, leaves*4096-100)
	path := writeFile(t, filepath.Join(dir, "file"), data)
	d, from, _, err := openForKills(dir)
	if err != nil {
		t.Fatal(err)
	}
	held := mustAdd(t, from, path)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	total, kills := 0, 0
	for ended := false; !ended; {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "CONTENT_TEST_PULL="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after, sent := 20+rand.IntN(150), 0
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var n int
			if _, err := fmt.Sscanf(lines.Text(), "sent %d", &n); err == nil {
				sent = max(sent, n)
				if sent >= after {
					cmd.Process.Kill()
				}
				continue
			}
			if lines.Text() != "end <nil>" {
				t.Fatal(lines.Text())
			}
			ended = true
		}
		cmd.Wait()
		total += sent
		if !ended {
			kills++
		}
		if kills > leaves {
			t.Fatal("it never ends: what was fetched is lost at every kill")
		}
	}
	if kills < 3 {
		t.Errorf("killed only %d times", kills)
	}
	// Each kill may cost what was on its way, no more.
	if most := leaves + kills*perRequest*fetchers; total > most {
		t.Errorf("%d leaves were sent in all, at most %d may be", total, most)
	}
	t.Logf("%d kills, %d leaves sent for %d", kills, total, leaves)
	d, _, to, err := openForKills(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	holds(t, to, held.CID, data)
	if names := files(t, filepath.Join(dir, "models")); len(names) != 1 || !strings.HasSuffix(names[0], ".gguf") {
		t.Errorf("in the folder: %q", names)
	}
}

// TestAddedSurvivesRestartOverBadger: the tables mean the same after a restart.
func TestAddedSurvivesRestartOverBadger(t *testing.T) {
	dir := t.TempDir()
	data := randomBytes(1, 100*4096)
	var root cid.Cid
	for range 2 {
		d, from, _, err := openForKills(dir)
		if err != nil {
			t.Fatal(err)
		}
		if root.Defined() {
			got, err := readAll(from, root)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("after a restart: %v", err)
			}
		}
		root = mustAdd(t, from, writeOnce(t, filepath.Join(dir, "file"), data)).CID
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func writeOnce(t *testing.T, path string, data []byte) string {
	if _, err := os.Stat(path); err == nil {
		return path
	}
	return writeFile(t, path, data)
}
