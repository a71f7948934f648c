package scheduler

import "sync"

// traffic counts the requests that run on this peer's own replicas, and those
// that this entrance has sent to each replica.
type traffic struct {
	mu   sync.Mutex
	here map[string]int           // By uid.
	sent map[replicaKey]int       // By replica, from this entrance.
	idle map[string]chan struct{} // Closed when nothing runs any more; by uid.
}

type replicaKey struct{ peer, uid string }

func newTraffic() *traffic {
	return &traffic{here: map[string]int{}, sent: map[replicaKey]int{}, idle: map[string]chan struct{}{}}
}

// enter counts a request on this peer's own replica until the func is called.
func (t *traffic) enter(uid string) (leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.here[uid]++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.here[uid]--; t.here[uid] > 0 {
			return
		}
		delete(t.here, uid)
		if idle := t.idle[uid]; idle != nil {
			close(idle)
			delete(t.idle, uid)
		}
	})
}

// quiet is closed once no request runs on this peer's replica.
func (t *traffic) quiet(uid string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.here[uid] == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if t.idle[uid] == nil {
		t.idle[uid] = make(chan struct{})
	}
	return t.idle[uid]
}

// send counts a request to a replica until the func is called.
func (t *traffic) send(peer, uid string) (back func()) {
	key := replicaKey{peer, uid}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent[key]++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.sent[key]--; t.sent[key] == 0 {
			delete(t.sent, key)
		}
	})
}

func (t *traffic) sentTo(peer, uid string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent[replicaKey{peer, uid}]
}

// InFlight counts the requests on each of this peer's replicas, by uid.
func (s *Scheduler) InFlight() map[string]int {
	s.traffic.mu.Lock()
	defer s.traffic.mu.Unlock()
	counts := make(map[string]int, len(s.traffic.here))
	for uid, n := range s.traffic.here {
		counts[uid] = n
	}
	return counts
}
