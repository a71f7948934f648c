package store

import (
	"fmt"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// commit is one call of Apply on its way to the disk.
type commit struct {
	writes []Write       // with full keys
	size   int           // bytes, as MaxBytes counts them
	life   time.Duration // after which they are gone; 0 is never
	// wake tells a waiting caller to go on: true to commit for the others
	// itself, false when err holds the outcome.
	wake chan bool
	err  error
}

// commitQueue joins the commits of concurrent callers, since a sync costs
// milliseconds however much it carries. There is no goroutine of its own: the
// first caller writes, whoever comes meanwhile waits, and the first of those
// then writes for all of them.
type commitQueue struct {
	mu      sync.Mutex
	busy    bool // somebody writes, or has been woken to
	waiting []*commit
}

func (q *commitQueue) do(own *commit, write func([]*commit) error) error {
	q.mu.Lock()
	q.waiting = append(q.waiting, own)
	if q.busy {
		q.mu.Unlock()
		if lead := <-own.wake; !lead {
			return own.err
		}
		q.mu.Lock()
	}
	q.busy = true
	batch := q.take()
	q.mu.Unlock()

	err := write(batch)
	for _, c := range batch {
		if c != own {
			c.err = err
			c.wake <- false
		}
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.busy = false
	} else {
		q.waiting[0].wake <- true
	}
	return err
}

// take removes from the front what fits one transaction; the first always does.
func (q *commitQueue) take() []*commit {
	n, size, count := 0, 0, 0
	for _, c := range q.waiting {
		size, count = size+c.size, count+len(c.writes)
		if n > 0 && (size > MaxBytes || count > MaxWrites) {
			break
		}
		n++
	}
	batch := q.waiting[:n:n]
	q.waiting = append([]*commit(nil), q.waiting[n:]...)
	return batch
}

// write commits a batch as one transaction, so each of its calls is atomic.
func (d *DB) write(batch []*commit) error {
	if err := d.room(); err != nil {
		return err
	}
	txn := d.badger.NewTransaction(true)
	defer txn.Discard()
	for _, c := range batch {
		for _, w := range c.writes {
			var err error
			if w.Delete {
				err = txn.Delete(w.Key)
			} else {
				entry := badger.NewEntry(w.Key, w.Value)
				if c.life > 0 {
					entry = entry.WithTTL(c.life)
				}
				err = txn.SetEntry(entry)
			}
			if err != nil {
				return fmt.Errorf("writing the database in %s: %w", d.dir, err)
			}
		}
	}
	if err := txn.Commit(); err != nil {
		return fmt.Errorf("writing the database in %s: %w", d.dir, err)
	}
	return nil
}
