//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/lab"
	"relay/cmd/stage"
)

const (
	// watched is how many peers the mesh of these figures has.
	watched = 5
	// falls is how often each thing happens to one of them.
	falls = 20
	// looks is how often the others are asked how they see it.
	looks = 20 * time.Millisecond
)

// silences: from the moment a peer is killed, frozen, or has its cable pulled,
// to the moment the last of the others routes away from it (suspect), and plans
// without it (gone).
func silences(ctx context.Context) error {
	return onNetwork(func(l *lab.Lab, s *stage.Stage) error {
		peers, err := meshOf(ctx, l, s, watched)
		if err != nil {
			return err
		}
		worst := map[string]float64{}
		for _, kind := range []struct {
			name       string
			fall, rise func(*stage.Peer) error
		}{
			{"kill", s.Kill, nil},
			{"freeze", (*stage.Peer).Freeze, (*stage.Peer).Thaw},
			{"cut", func(p *stage.Peer) error { return l.Pull(p.Name) }, func(p *stage.Peer) error { return l.Plug(p.Name) }},
		} {
			var suspect, gone []float64
			for i := range falls {
				victim := peers[i%watched]
				began := time.Now()
				if err := kind.fall(victim); err != nil {
					return err
				}
				suspected, went, err := watchFall(ctx, peers, victim, began)
				if err != nil {
					return err
				}
				suspect, gone = append(suspect, suspected), append(gone, went)
				figure.Say("%s of %s: suspect after %.2f s, gone after %.2f s", kind.name, victim.Name, suspected, went)
				if kind.rise != nil {
					err = kind.rise(victim)
				} else {
					peers[i%watched], err = s.Up(ctx, victim.Name)
				}
				if err != nil {
					return err
				}
				if err := allAlive(ctx, peers); err != nil {
					return err
				}
			}
			for name, list := range map[string][]float64{"suspect_s": suspect, "gone_s": gone} {
				figure.Value(name+"_"+kind.name, p99(list), "s")
				worst[name] = max(worst[name], p99(list))
			}
		}
		figure.Value("suspect_s", worst["suspect_s"], "s")
		figure.Value("gone_s", worst["gone_s"], "s")
		return nil
	})
}

// watchFall waits until all others see a peer as gone, and says how long after
// it began the last of them saw it as not alive, and as gone, in seconds.
func watchFall(ctx context.Context, peers []*stage.Peer, victim *stage.Peer, began time.Time) (suspect, gone float64, err error) {
	falling, fallen := map[*stage.Peer]bool{victim: true}, map[*stage.Peer]bool{victim: true}
	for len(fallen) < len(peers) {
		if time.Since(began) > time.Minute {
			return 0, 0, fmt.Errorf("%d of %d peers see that %s is gone", len(fallen)-1, len(peers)-1, victim.Name)
		}
		for _, p := range peers {
			if fallen[p] {
				continue
			}
			seen, err := p.Sees(ctx)
			if err != nil {
				return 0, 0, err
			}
			state := seen[victim.Name].State
			if state != "alive" && !falling[p] {
				falling[p], suspect = true, seconds(began)
			}
			if state == "gone" {
				fallen[p], gone = true, seconds(began)
			}
		}
		if err := pass(ctx, looks); err != nil {
			return 0, 0, err
		}
	}
	return suspect, gone, nil
}
