package scheduler

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"relay/store"
)

// leastFree and leastShare are how much of the models' disk relay wants free, in
// bytes and as one part in so many: whichever is less.
const (
	leastFree  = 1 << 30
	leastShare = 20
)

// DiskUse is what models take on this machine's disk, in bytes.
type DiskUse struct {
	// Free and Total are of the disk of the models folder.
	Free  uint64 `json:"free"`
	Total uint64 `json:"total"`
	// Models are all files that are registered here, wherever they lie. Cache is
	// what relay has put here and may delete: what was pulled, finished or not, and
	// tensors of shares.
	Models CapUse `json:"models"`
	Cache  CapUse `json:"cache"`
	// Unfinished are the pulls that were not brought to their end.
	Unfinished []PullState `json:"unfinished"`
	// Stuck says why nothing could be freed although the disk is nearly full.
	Stuck string `json:"stuck,omitempty"`

	machine string
}

// CapUse is how much is used, and how much its owner wants it to be at most, in
// bytes; 0 where the owner wants nothing. A cap warns, and deletes nothing.
type CapUse struct {
	Used uint64 `json:"used"`
	Cap  uint64 `json:"cap,omitempty"`
}

func (c CapUse) over() bool { return c.Cap > 0 && c.Used > c.Cap }

// DiskUse adds up what models take here.
func (s *Scheduler) DiskUse() DiskUse {
	u := DiskUse{Models: CapUse{Cap: s.ModelsMax}, Cache: CapUse{Cap: s.CacheMax}, Unfinished: s.unfinished(s.newView()), machine: s.Mesh.NameOf(s.Mesh.Self())}
	u.Free, u.Total, _ = s.Disk() // Who measures says what fails.
	for _, c := range s.Content.List() {
		if !c.Complete {
			continue // Whatever is there now is something else.
		}
		u.Models.Used += uint64(c.Bytes)
		if c.Pulled != "" {
			u.Cache.Used += uint64(c.Bytes)
		}
	}
	for _, p := range u.Unfinished {
		if p.Part {
			u.Cache.Used += uint64(max(0, p.Done))
		} else {
			u.Cache.Used += uint64(max(p.Done, p.Bytes)) // Its file has the whole size from the beginning.
		}
	}
	if s.Tensors != nil {
		u.Cache.Used += uint64(s.Tensors.Bytes())
	}
	s.mu.Lock()
	u.Stuck = s.stuck
	s.mu.Unlock()
	return u
}

// overCaps are sentences about caps that are crossed.
func (u DiskUse) overCaps() (list []string) {
	if u.Models.over() {
		list = append(list, fmt.Sprintf("the models on %s take %s, more than RELAY_MODELS_MAX (%s) wants; nothing is deleted for that",
			u.machine, store.FormatBytes(u.Models.Used), store.FormatBytes(u.Models.Cap)))
	}
	if u.Cache.over() {
		list = append(list, fmt.Sprintf("what was pulled to %s takes %s, more than RELAY_CACHE_MAX (%s) wants; nothing is deleted for that (relay cache prune frees what may go)",
			u.machine, store.FormatBytes(u.Cache.Used), store.FormatBytes(u.Cache.Cap)))
	}
	return list
}

// Warnings are sentences about caps that are crossed, and about a disk that is
// nearly full.
func (u DiskUse) Warnings() []string {
	list := u.overCaps()
	if u.Stuck != "" {
		list = append(list, u.Stuck)
	}
	return list
}

// tooFull says whether less is free than relay wants.
func tooFull(free, total uint64) bool { return total > 0 && free < WantsFree(total) }

// WantsFree is how much of a disk is to be free, in bytes.
func WantsFree(total uint64) uint64 { return min(leastFree, total/leastShare) }

// watchDisk makes room whenever the models' disk was measured as nearly full.
func (s *Scheduler) watchDisk(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.diskFull:
		}
		if s.makeRoom(ctx) {
			continue
		}
		pause := time.NewTimer(roomEvery) // What stops it will stop it again.
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
	}
}

// measuredDisk is told what is free; see watchDisk.
func (s *Scheduler) measuredDisk(free, total uint64) {
	if !tooFull(free, total) {
		s.mu.Lock()
		s.stuck = ""
		s.mu.Unlock()
		return
	}
	select {
	case s.diskFull <- struct{}{}:
	default:
	}
}

// roomEvery is how often room is tried to be made where nothing may be deleted.
const roomEvery = 15 * time.Second

// makeRoom deletes what may go until twice as much is free as relay wants, and
// says whether there is room now.
func (s *Scheduler) makeRoom(ctx context.Context) bool {
	free, total, err := s.Disk()
	if err != nil || !tooFull(free, total) {
		return true
	}
	want, began := 2*WantsFree(total), free
	(&PruneOptions{}).pruneTensors(s.Tensors)
	result, err := s.free(ctx, freeOptions{
		only: func(p Piece) bool {
			return s.ModelsDir == "" || filepath.Dir(p.Path) == s.ModelsDir || filepath.Dir(filepath.Dir(p.Path)) == s.ModelsDir
		},
		need: func(_, _ uint64) uint64 {
			now, _, err := s.Disk()
			if err != nil {
				return 0 // Nothing goes for what nobody can measure.
			}
			return want - min(want, now)
		},
		gone: func(p Piece) {
			what := "an unfinished pull of"
			if !p.Unfinished {
				what = "the pulled copy of"
			}
			s.decisions.say(p.Name, fmt.Sprintf("the models' disk of %s was nearly full (%s free): %s %q was deleted (%s)",
				s.Mesh.NameOf(s.Mesh.Self()), store.FormatBytes(began), what, p.Name, store.FormatBytes(p.Bytes)))
			s.log.Warn("deleted to make room", "name", p.Name, "cid", p.CID, "bytes", p.Bytes, "free", began)
		},
	})
	if err != nil && ctx.Err() == nil {
		s.log.Error("no room made on a disk that is nearly full", "error", err)
	}
	stuck := ""
	if now, _, err := s.Disk(); err == nil && tooFull(now, total) {
		stuck = s.stuckText(now, total, result.Kept)
	}
	s.mu.Lock()
	news := stuck != "" && s.stuck == ""
	s.stuck = stuck
	s.mu.Unlock()
	if news {
		s.log.Warn("the disk is nearly full and nothing may be deleted", "free", free)
	}
	return stuck == ""
}

// stuckText says that nothing may go, and why not.
func (s *Scheduler) stuckText(free, total uint64, kept []Piece) string {
	text := fmt.Sprintf("the models' disk of %s is nearly full (%s of %s free), and relay may delete nothing more there",
		s.Mesh.NameOf(s.Mesh.Self()), store.FormatBytes(free), store.FormatBytes(total))
	var list []string
	for _, p := range kept[:min(len(kept), shownKept)] {
		list = append(list, fmt.Sprintf("%s: %s", p.Name, p.Why))
	}
	if more := len(kept) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	if len(list) > 0 {
		text += " (" + strings.Join(list, "; ") + ")"
	}
	return text
}

// shownKept bounds the contents that a sentence names.
const shownKept = 3
