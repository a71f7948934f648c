package record_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"pgregory.net/rapid"

	"relay/p2p/record"
)

// syncTables runs Sync on both ends of a pipe.
func syncTables(a, b *record.Table, oa, ob record.SyncOptions) (sa, sb record.Stats, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ca, cb := net.Pipe()
	defer ca.Close()
	defer cb.Close()
	type end struct {
		stats record.Stats
		err   error
	}
	other := make(chan end)
	go func() {
		s, err := record.Sync(ctx, cb, b, false, ob)
		cb.Close()
		other <- end{s, err}
	}()
	sa, errA := record.Sync(ctx, ca, a, true, oa)
	ca.Close()
	e := <-other
	return sa, e.stats, errors.Join(errA, e.err)
}

// meshPeer is one peer of a generated mesh.
type meshPeer struct {
	name string
	disk *disk
	tab  *record.Table
}

// TestConverge lets peers write, restart, and pass records on by a gossip that
// loses, doubles and reorders them, under partitions; then each two neighbours
// of a ring sync, twice round, and all must be equal. Rights are grants, so that a
// record often comes before what allows it.
func TestConverge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(rt, "peers")
		peers := make([]*meshPeer, n)
		var air []record.Signed // everything that was ever published
		open := func(p *meshPeer) {
			g := &grants{root: idOf("peer0")}
			tab, err := record.NewTable(record.Options{Storage: p.disk, Key: keyOf(p.name), Kinds: kinds(), Rights: g,
				Publish: func(s record.Signed) { air = append(air, s) }})
			if err != nil {
				rt.Fatal(err)
			}
			g.table, p.tab = tab, tab
		}
		for i := range peers {
			peers[i] = &meshPeer{name: fmt.Sprint("peer", i), disk: newDisk()}
			open(peers[i])
		}
		side := make([]int, n) // of the partition
		pick := rapid.IntRange(0, n-1)
		clock := time.Unix(1000, 0)
		may := func(err error) {
			if err != nil && !errors.Is(err, record.ErrNotMember) && !errors.Is(err, record.ErrNotFound) &&
				!errors.Is(err, record.ErrSuperseded) {
				rt.Fatal(err)
			}
		}
		id := rapid.SampledFrom([]string{"a", "b", "c/d"})
		payload := rapid.SliceOfN(rapid.Byte(), 0, 3)
		rt.Repeat(map[string]func(*rapid.T){
			"grant": func(rt *rapid.T) {
				by, to := peers[pick.Draw(rt, "by")], pick.Draw(rt, "to")
				_, err := by.tab.PutOwned("grant", idOf(peers[to].name).String()+"/"+idOf(by.name).String(), nil)
				may(err)
			},
			"note": func(rt *rapid.T) {
				_, err := peers[pick.Draw(rt, "by")].tab.PutShared("note", id.Draw(rt, "id"), payload.Draw(rt, "payload"))
				may(err)
			},
			"delete": func(rt *rapid.T) {
				_, err := peers[pick.Draw(rt, "by")].tab.DeleteShared("note", id.Draw(rt, "id"))
				may(err)
			},
			"advert": func(rt *rapid.T) {
				p := peers[pick.Draw(rt, "by")]
				_, err := p.tab.PutOwned("advert", idOf(p.name).String()+"/"+id.Draw(rt, "id"), payload.Draw(rt, "payload"))
				may(err)
			},
			"placement": func(rt *rapid.T) {
				p, uid := peers[pick.Draw(rt, "by")], id.Draw(rt, "id")
				old, _ := p.tab.Latest("placement", uid)
				v := record.Version{max(1, old.Version[0]+rapid.Uint64Range(0, 1).Draw(rt, "epoch")), rapid.Uint64().Draw(rt, "rank"), 0}
				_, err := p.tab.PutPlacement(uid, v, payload.Draw(rt, "payload"))
				may(err)
			},
			"gossip": func(rt *rapid.T) {
				if len(air) == 0 {
					return
				}
				s := air[rapid.IntRange(0, len(air)-1).Draw(rt, "record")]
				s, err := record.Open(s.Raw)
				if err != nil {
					rt.Fatal(err)
				}
				to := pick.Draw(rt, "to")
				for i, p := range peers {
					if idOf(p.name) == s.Author && side[i] != side[to] {
						return // lost
					}
				}
				if out, err := peers[to].tab.Offer(s); out == record.Refused {
					rt.Fatalf("%s refused %s by %s: %v", peers[to].name, s.Key(), s.Author, err)
				}
			},
			"partition": func(rt *rapid.T) {
				for i := range side {
					side[i] = rapid.IntRange(0, 1).Draw(rt, "side")
				}
			},
			"sync": func(rt *rapid.T) {
				a, b := pick.Draw(rt, "a"), pick.Draw(rt, "b")
				if a == b || side[a] != side[b] {
					return
				}
				if _, _, err := syncTables(peers[a].tab, peers[b].tab, record.SyncOptions{}, record.SyncOptions{}); err != nil {
					rt.Fatal(err)
				}
				if held := peers[a].tab.Held() + peers[b].tab.Held(); held == 0 {
					sameTables(rt, peers[a].tab, peers[b].tab)
				}
			},
			"restart": func(rt *rapid.T) {
				p := peers[pick.Draw(rt, "peer")]
				before := dump(p.tab)
				p.disk = p.disk.copyOf()
				open(p)
				if dump(p.tab) != before {
					rt.Fatalf("after a restart:\n%s\nbefore:\n%s", dump(p.tab), before)
				}
			},
			"recheck": func(rt *rapid.T) {
				clock = clock.Add(time.Duration(rapid.IntRange(0, 40).Draw(rt, "seconds")) * time.Second)
				peers[pick.Draw(rt, "peer")].tab.Recheck(clock)
			},
		})
		for range 2 {
			for i := range peers {
				if _, _, err := syncTables(peers[i].tab, peers[(i+1)%n].tab, record.SyncOptions{}, record.SyncOptions{}); err != nil {
					rt.Fatal(err)
				}
			}
		}
		tabs := make([]*record.Table, n)
		for i, p := range peers {
			tabs[i] = p.tab
		}
		sameTables(rt, tabs...)
		// What is equal costs next to nothing.
		s, _, err := syncTables(tabs[0], tabs[1], record.SyncOptions{}, record.SyncOptions{})
		if err != nil || !s.Equal || s.BytesIn+s.BytesOut > 100 {
			rt.Fatalf("equal tables: %+v, %v", s, err)
		}
	})
}

// TestOrderDoesNotMatter offers one set of records, hostile ones included, to
// tables in different orders.
func TestOrderDoesNotMatter(t *testing.T) {
	names := []string{"ann", "bob", "cid"}
	rapid.Check(t, func(rt *rapid.T) {
		var all []record.Signed
		for range rapid.IntRange(1, 20).Draw(rt, "records") {
			author := rapid.SampledFrom(names).Draw(rt, "author")
			count := rapid.SampledFrom([]uint64{0, 1, 2, 3, 1 << 16, 1<<16 + 4, record.MaxCount - 1, record.MaxCount, 1<<64 - 1})
			s, err := record.Seal(record.Record{
				Kind:    rapid.SampledFrom([]string{"note", "advert", "placement", "later"}).Draw(rt, "kind"),
				ID:      rapid.SampledFrom([]string{"x", idOf("ann").String()}).Draw(rt, "id"),
				Version: record.Version{count.Draw(rt, "v0"), count.Draw(rt, "v1"), count.Draw(rt, "v2")},
				Deleted: rapid.Bool().Draw(rt, "deleted"),
				Payload: []byte(rapid.SampledFrom([]string{"", "p", "bad"}).Draw(rt, "payload")),
			}, keyOf(author))
			if err != nil {
				rt.Fatal(err)
			}
			all = append(all, s)
		}
		first := table(t, "me", newDisk())
		for _, s := range all {
			first.Offer(s)
		}
		second := table(t, "me", newDisk())
		for _, s := range rapid.Permutation(append(all, all...)).Draw(rt, "order") {
			second.Offer(s)
		}
		sameTables(rt, first, second)
	})
}

// TestAcknowledgedIsStored kills the process at any write: what a call said was
// done is there afterwards, and no version is ever used twice.
func TestAcknowledgedIsStored(t *testing.T) {
	killed := errors.New("killed")
	rapid.Check(t, func(rt *rapid.T) {
		d := newDisk()
		acknowledged := make(map[string]record.Signed)
		versions := make(map[string]string) // key and version to content
		me := idOf("me").String()
		for range rapid.IntRange(1, 4).Draw(rt, "lives") {
			left := rapid.IntRange(0, 12).Draw(rt, "writes until the kill")
			written := rapid.Bool().Draw(rt, "last write reached the disk")
			dead := false
			d.fail = func() (error, bool) {
				if dead {
					return killed, false
				}
				if left--; left < 0 {
					dead = true
					return killed, written
				}
				return nil, false
			}
			tab, err := record.NewTable(record.Options{Storage: d, Key: keyOf("me"), Kinds: kinds(), Rights: everyone{}})
			for step := 0; err == nil && step < 12; step++ {
				var s record.Signed
				id := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "id")
				switch rapid.IntRange(0, 3).Draw(rt, "what") {
				case 0:
					s, err = tab.PutOwned("advert", me+"/"+id, []byte(fmt.Sprint(left, step)))
				case 1:
					s, err = tab.PutShared("note", id, []byte(fmt.Sprint(left, step)))
				case 2:
					s, err = tab.DeleteShared("note", id)
				case 3:
					old, _ := tab.Latest("note", id)
					s, err = record.Seal(note(id, old.Version[0]+1, "ann's"), keyOf("ann"))
					if err == nil {
						_, err = tab.Offer(s)
					}
				}
				if errors.Is(err, record.ErrNotFound) {
					err = nil
					continue
				}
				if err == nil {
					acknowledged[s.Key()] = s
					if s.Author == idOf("me") {
						at := s.Key() + s.Version.String()
						if old, used := versions[at]; used && old != string(s.Payload) {
							rt.Fatalf("%s was written twice under %s", s.Key(), s.Version)
						}
						versions[at] = string(s.Payload)
					}
				}
			}
			if err != nil && !errors.Is(err, killed) {
				rt.Fatal(err)
			}
			d = d.copyOf()
			after, err := record.NewTable(record.Options{Storage: d.copyOf(), Key: keyOf("me"), Kinds: kinds(), Rights: everyone{}})
			if err != nil {
				rt.Fatal(err)
			}
			for key, s := range acknowledged {
				got, ok := after.Latest(s.Kind, s.ID)
				if !ok || got.Version.Less(s.Version) {
					rt.Fatalf("%s %s was acknowledged; after the kill there is %s", key, s.Version, got.Version)
				}
			}
		}
	})
}
