//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"relay/cmd/bench/figure"
)

// resuming: the share of a file that is fetched twice when the pulling peer is
// killed on the way and pulls again. It is told by what the holder's process
// writes, nearly all of it to the puller, against what it writes for a pull that
// nobody disturbs: what was on its way to the puller when it died counts too.
// Where the pulls themselves say that they received more, that counts.
func resuming(ctx context.Context) error {
	cases := []struct {
		name string
		at   float64 // The share of the file after which the puller is killed; 0: never.
	}{{"whole", 0}, {"early", 0.1}, {"half", 0.5}, {"late", 0.9}}
	return inMemory(2*fileBytes, func(dir string) error {
		return onPair(ctx, dir, func(p *pair) error {
			twice := map[string][]float64{}
			for i := range rounds {
				path := filepath.Join(dir, fmt.Sprintf("large%d.gguf", i))
				if err := figure.WriteLarge(path, fileBytes, uint64(i)); err != nil {
					return err
				}
				whole := 0.0
				for _, c := range cases {
					sent, fetched, err := p.pullKilled(ctx, path, c.at*whole)
					if err != nil {
						return err
					}
					figure.Say("%s: the holder wrote %.4f of the file, the pulls say that they received %.4f", c.name, sent/fileBytes, float64(fetched)/fileBytes)
					if c.at == 0 {
						whole = sent
						continue
					}
					twice[c.name] = append(twice[c.name], max(sent/whole, float64(fetched)/fileBytes)-1)
				}
				if err := os.Remove(path); err != nil {
					return err
				}
			}
			worst := 0.0
			for _, c := range cases[1:] {
				figure.Value("resume_refetched_"+c.name, figure.Median(twice[c.name]), "share")
				worst = max(worst, figure.Median(twice[c.name]))
			}
			figure.Value("resume_refetched", worst, "share")
			return nil
		})
	})
}

// pullKilled adds and pulls a file; the puller is killed once the holder has
// written that many bytes, unless that is 0, and pulls again. It returns how much
// the holder wrote in all and how much the pulls say that they received, in bytes.
func (p *pair) pullKilled(ctx context.Context, path string, after float64) (sent float64, fetched int64, err error) {
	if _, err := p.add(ctx, path); err != nil {
		return 0, 0, err
	}
	if err := p.known(ctx, path); err != nil {
		return 0, 0, err
	}
	before, err := written(p.holder.Pid())
	if err != nil {
		return 0, 0, err
	}
	if after > 0 {
		if fetched, err = p.pullAndDie(ctx, path, before+after); err != nil {
			return 0, 0, err
		}
		if p.puller, err = p.stage.Up(ctx, p.puller.Name, lendNothing...); err != nil {
			return 0, 0, err
		}
		if err := p.known(ctx, path); err != nil {
			return 0, 0, err
		}
	}
	pull, err := p.startPull(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	last, err := pull.wait()
	if err != nil {
		return 0, 0, err
	}
	end, err := written(p.holder.Pid())
	if err != nil {
		return 0, 0, err
	}
	pulled, err := p.pulled()
	if err != nil {
		return 0, 0, err
	}
	return end - before, fetched + last, errors.Join(same(path, pulled), p.drop(ctx, path))
}

// pullAndDie pulls a file and kills the puller once the holder has written that
// many bytes since it started. It returns how much the pull said it had received.
func (p *pair) pullAndDie(ctx context.Context, path string, until float64) (fetched int64, err error) {
	pull, err := p.startPull(ctx, path)
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for sent := 0.0; sent < until; {
		select {
		case <-tick.C:
		case <-pull.ended:
			_, err := pull.wait()
			return 0, fmt.Errorf("the pull ended before the puller was killed: %w", err)
		}
		if sent, err = written(p.holder.Pid()); err != nil {
			return 0, err
		}
	}
	if err := p.stage.Kill(p.puller); err != nil {
		return 0, err
	}
	fetched, err = pull.wait()
	if err == nil {
		return 0, errors.New("the pull ended well although the puller was killed")
	}
	return fetched, nil
}

// runningPull is a pull that a command follows.
type runningPull struct {
	ended   chan struct{} // Closed when the command has ended; what follows is set by then.
	fetched int64         // What it said last that it had received, in bytes.
	err     error
}

func (p *pair) startPull(ctx context.Context, path string) (*runningPull, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	cmd := p.stage.Command(ctx, p.puller, "model", "pull", modelOf(path), "--json")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	r := &runningPull{ended: make(chan struct{})}
	go func() {
		defer cancel()
		defer close(r.ended)
		r.fetched = lastFetched(out)
		r.err = cmd.Wait()
	}()
	return r, nil
}

func (r *runningPull) wait() (fetched int64, err error) {
	<-r.ended
	return r.fetched, r.err
}

// lastFetched reads the lines of a pull to their end.
func lastFetched(out io.Reader) (fetched int64) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var line struct{ Progress struct{ Fetched int64 } }
		if json.Unmarshal(lines.Bytes(), &line) == nil {
			fetched = max(fetched, line.Progress.Fetched)
		}
	}
	return fetched
}

// written is how many bytes a process has written so far, to files and sockets.
func written(pid int) (float64, error) {
	io, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`wchar: (\d+)`).FindSubmatch(io)
	if found == nil {
		return 0, fmt.Errorf("/proc/%d/io does not say what was written: %s", pid, io)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}
