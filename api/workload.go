package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"relay/scheduler"
)

const (
	// maxCounted, maxLinks and maxSince bound what another peer may say of a replica: its
	// requests, its workers, and how long ago something was, in seconds.
	maxCounted = 1 << 20
	maxLinks   = 64
	maxSince   = 100 * 366 * 24 * 60 * 60
)

var errNoWorkload = errors.New("the peer's workload is none that there can be")

// workload is what one peer's replicas do, by model uid.
type workload struct {
	runs map[string]scheduler.Workload
	// inFlightOnly: the peer is of a release that says no more.
	inFlightOnly bool
}

func workloadOf(list []scheduler.Workload) (workload, error) {
	w := workload{runs: make(map[string]scheduler.Workload, len(list))}
	for _, one := range list {
		if one.InFlight < 0 || one.InFlight > maxCounted || one.Waiting < 0 || one.Waiting > maxCounted || !possible(one.LastServed) || !possible(one.Resident) || len(one.Links) > maxLinks {
			return w, errNoWorkload
		}
		w.runs[one.UID] = one
	}
	return w, nil
}

func possible(seconds *float64) bool { return seconds == nil || *seconds >= 0 && *seconds <= maxSince }

// askWorkloads asks those of the peers that are worth it what their replicas do,
// for askPatience at most. Who is not in the answer did not answer.
func (c *Control) askWorkloads(ctx context.Context, peers []scheduler.PeerState) map[string]workload {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	answers := map[string]workload{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, p := range peers {
		if !p.Self && !asked(p) {
			continue
		}
		asking.Go(func() {
			var w workload
			var err error
			if p.Self {
				w, err = workloadOf(c.Scheduler.Workload())
			} else {
				w, err = c.peers().workload(ctx, p.ID)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				answers[p.ID] = w
			}
		})
	}
	asking.Wait()
	return answers
}

// fillIn says of the replicas of a model what their peers answered.
func fillIn(m *scheduler.ModelState, answers map[string]workload) {
	for i := range m.Replicas {
		r := &m.Replicas[i]
		answer, ok := answers[r.Peer]
		if !ok {
			continue
		}
		run, listed := answer.runs[m.UID]
		if listed || r.InFlight == nil {
			r.InFlight = &run.InFlight
		}
		if listed && !answer.inFlightOnly {
			r.Measured(run)
		}
	}
}

// running are the peers that have replicas of a model.
func (c *Control) running(m scheduler.ModelState) []scheduler.PeerState {
	runs := map[string]bool{}
	for _, r := range m.Replicas {
		runs[r.Peer] = true
	}
	var list []scheduler.PeerState
	for _, p := range c.Scheduler.Peers() {
		if runs[p.ID] {
			list = append(list, p)
		}
	}
	return list
}

func (p peerClient) workload(ctx context.Context, to string) (workload, error) {
	var list []scheduler.Workload
	status, err := p.read(ctx, to, "/workload", &list)
	switch {
	case status == http.StatusNotFound: // An older release.
		var load map[string]int
		if status, err = p.read(ctx, to, "/load", &load); err == nil && status == http.StatusOK {
			for uid, n := range load {
				list = append(list, scheduler.Workload{UID: uid, InFlight: n})
			}
			w, err := workloadOf(list)
			w.inFlightOnly = true
			return w, err
		}
	case err == nil && status == http.StatusOK:
		return workloadOf(list)
	}
	if err == nil {
		err = fmt.Errorf("the peer answered %s", http.StatusText(status))
	}
	return workload{}, err
}

// read gets what a peer answers to a question, where it answers with 200.
func (p peerClient) read(ctx context.Context, to, path string, answer any) (status int, err error) {
	response, err := p.do(ctx, to, http.MethodGet, path, nil)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return response.StatusCode, nil
	}
	return response.StatusCode, json.NewDecoder(io.LimitReader(response.Body, maxPeerAnswer)).Decode(answer)
}
