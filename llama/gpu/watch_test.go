package gpu

import (
	"testing"
	"time"
)

func TestWatch(t *testing.T) {
	start := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	at := func(mono, wall time.Duration) Moment { return Moment{start.Add(wall), time.Hour + mono} }
	var fresh Watch
	if look, list := fresh.Due(at(0, 0), ""); !look || !list {
		t.Error("nothing was looked at yet")
	}
	for _, c := range []struct {
		name       string
		gpus       bool
		now        Moment
		build      string
		look, list bool
	}{
		{"at once", true, at(0, 0), "b1", false, false},
		{"soon", true, at(4*time.Second, 4*time.Second), "b1", false, false},
		{"with a GPU", true, at(5*time.Second, 5*time.Second), "b1", true, false},
		{"a minute with one", true, at(time.Minute, time.Minute), "b1", true, true},
		{"without", false, at(59*time.Second, 59*time.Second), "b1", false, false},
		{"a minute without", false, at(time.Minute, time.Minute), "b1", true, true},
		{"after sleep", false, at(time.Second, 7*time.Second), "b1", true, true},
		{"the clock was set a little", false, at(time.Second, 6*time.Second), "b1", false, false},
		{"the clock was set back", false, at(time.Second, -time.Hour), "b1", true, true},
		{"another build", false, at(time.Second, time.Second), "b2", true, true},
		{"no build any more", false, at(time.Second, time.Second), "", true, true},
	} {
		var w Watch
		w.Looked(at(0, 0), "b1", true, c.gpus)
		if look, list := w.Due(c.now, c.build); look != c.look || list != c.list {
			t.Errorf("%s: look %v, list %v", c.name, look, list)
		}
	}
	// Looks between do not put the list off.
	var w Watch
	w.Looked(at(0, 0), "b1", true, true)
	w.Looked(at(58*time.Second, 58*time.Second), "b1", false, true)
	if look, list := w.Due(at(time.Minute, time.Minute), "b1"); !look || !list {
		t.Error("the list is a minute old")
	}
}
