package eviction_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"relay/scheduler/eviction"
)

func TestChoose(t *testing.T) {
	old := eviction.Item{ID: "old", Bytes: 4, Used: 1}
	young := eviction.Item{ID: "young", Bytes: 4, Used: 9}
	part := eviction.Item{ID: "part", Bytes: 1, Used: 20, Unfinished: true}
	pinned := eviction.Item{ID: "pinned", Bytes: 4, Pinned: true}
	running := eviction.Item{ID: "running", Bytes: 4, Running: true, Pinned: true}
	last := eviction.Item{ID: "last", Bytes: 4, Last: true}
	pulling := eviction.Item{ID: "pulling", Bytes: 4, Unfinished: true, Running: true}
	all := []eviction.Item{young, last, running, part, pinned, old, pulling}
	for _, c := range []struct {
		name        string
		items       []eviction.Item
		need        uint64
		goes, stays string
	}{
		{"nothing there", nil, eviction.All, "", ""},
		{"nothing needed", all, 0, "", "pulling running, part spared, last last_copy, pinned pinned, running running, old spared, young spared"},
		{"unfinished pulls first", all, 1, "part", "pulling running, last last_copy, pinned pinned, running running, old spared, young spared"},
		{"then what was unused for longest", all, 2, "part old", "pulling running, last last_copy, pinned pinned, running running, young spared"},
		{"exactly enough", all, 5, "part old", "pulling running, last last_copy, pinned pinned, running running, young spared"},
		{"everything that may", all, eviction.All, "part old young", "pulling running, last last_copy, pinned pinned, running running"},
		{"more than there is", []eviction.Item{last, old}, 100, "old", "last last_copy"},
		{"the larger of two used at the same time", []eviction.Item{{ID: "a", Bytes: 1}, {ID: "b", Bytes: 2}}, 1, "b", "a spared"},
		{"sums that overflow", []eviction.Item{{ID: "a", Bytes: eviction.All}, {ID: "b", Bytes: eviction.All}}, eviction.All, "a", "b spared"},
	} {
		t.Run(c.name, func(t *testing.T) {
			goes, stays := eviction.Choose(c.items, c.need)
			var ids, kept []string
			for _, i := range goes {
				ids = append(ids, i.ID)
			}
			for _, s := range stays {
				kept = append(kept, s.ID+" "+s.Reason)
			}
			if got := strings.Join(ids, " "); got != c.goes {
				t.Errorf("%q goes, want %q", got, c.goes)
			}
			if got := strings.Join(kept, ", "); got != c.stays {
				t.Errorf("stays: %s\nwant   %s", got, c.stays)
			}
		})
	}
}

func TestChoices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items []eviction.Item
		for n := range rapid.IntRange(0, 8).Draw(t, "items") {
			yes := func(what string) bool { return rapid.Float64().Draw(t, what) < 0.25 }
			items = append(items, eviction.Item{ID: fmt.Sprint("id", n), Bytes: rapid.Uint64Range(0, 5).Draw(t, "bytes"), Used: rapid.Int64Range(0, 3).Draw(t, "used"),
				Unfinished: yes("unfinished"), Pinned: yes("pinned"), Running: yes("running"), Last: yes("last")})
		}
		need := rapid.Uint64Range(0, 20).Draw(t, "need")
		given := slices.Clone(items)
		goes, stays := eviction.Choose(items, need)
		if !reflect.DeepEqual(items, given) {
			t.Fatal("the items were changed")
		}
		if again, kept := eviction.Choose(rapid.Permutation(items).Draw(t, "order"), need); !reflect.DeepEqual(again, goes) || !reflect.DeepEqual(kept, stays) {
			t.Fatalf("the order of the items matters: %v %v, %v %v", goes, stays, again, kept)
		}
		var freed, before uint64
		for n, i := range goes {
			if i.Pinned || i.Running || i.Last && !i.Unfinished {
				t.Fatalf("%+v goes", i)
			}
			if n > 0 && (i.Unfinished && !goes[n-1].Unfinished || i.Unfinished == goes[n-1].Unfinished && i.Used < goes[n-1].Used) {
				t.Fatalf("%+v goes after %+v", i, goes[n-1])
			}
			before, freed = freed, freed+i.Bytes
		}
		if len(goes) > 0 && before >= need {
			t.Fatalf("%d needed, %d freed before the last one went", need, before)
		}
		spared := uint64(0)
		for _, s := range stays {
			switch free := !s.Pinned && !s.Running && (!s.Last || s.Unfinished); {
			case s.Reason == "" || free != (s.Reason == eviction.Spared):
				t.Fatalf("%+v", s)
			case free:
				spared += s.Bytes
				if freed < need {
					t.Fatalf("%d of %d bytes freed, and %+v stays", freed, need, s)
				}
				for _, i := range goes {
					if s.Unfinished && !i.Unfinished || s.Unfinished == i.Unfinished && s.Used < i.Used {
						t.Fatalf("%+v goes and %+v stays", i, s)
					}
				}
			}
		}
		if len(goes)+len(stays) != len(items) || freed+spared != eviction.Freeable(items) {
			t.Fatalf("%d go and %d stay of %d; %d freed and %d spared of %d", len(goes), len(stays), len(items), freed, spared, eviction.Freeable(items))
		}
	})
}
