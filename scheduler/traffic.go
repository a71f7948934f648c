package scheduler

import "sync"

// traffic counts the requests that this entrance has sent to each replica.
type traffic struct {
	mu   sync.Mutex
	sent map[replicaKey]int
}

type replicaKey struct{ peer, uid string }

func newTraffic() *traffic { return &traffic{sent: map[replicaKey]int{}} }

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
