package leadership_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"relay/scheduler/leadership"
)

// ranked are peers by their rank for model m, the highest first.
func ranked(names ...string) []string {
	slices.SortFunc(names, func(a, b string) int {
		if leadership.Rank("m", a) > leadership.Rank("m", b) {
			return -1
		}
		return 1
	})
	return names
}

func TestLeader(t *testing.T) {
	p := ranked("ann", "bob", "cid", "dan")
	const able, alive, settled = 1, 2, 4
	can := func(flags ...int) []leadership.Candidate {
		var list []leadership.Candidate
		for i, f := range flags {
			list = append(list, leadership.Candidate{ID: p[i], Able: f&able != 0, Alive: f&alive != 0, Settled: f&settled != 0})
		}
		return list
	}
	claim := func(i int) leadership.Claim {
		return leadership.Claim{Peer: p[i], Fence: leadership.Fence{Epoch: 4, Rank: leadership.Rank("m", p[i])}}
	}
	last := claim(2)
	last.Fence.Epoch = leadership.MaxEpoch - 1
	for _, tc := range []struct {
		name       string
		incumbent  leadership.Claim
		candidates []leadership.Candidate
		leader     int // -1: nobody
		epoch      uint64
		claim      bool
	}{
		{"the first one ever", leadership.Claim{}, can(7, 7, 7), 0, 1, true},
		{"the incumbent stays", claim(2), can(7, 7, 7), 2, 4, false},
		{"also when it was restarted just now", claim(2), can(7, 7, able|alive), 2, 4, false},
		{"the incumbent is gone", claim(2), can(7, 7, able|settled), 0, 5, true},
		{"the incumbent drains", claim(2), can(7, 7, alive|settled), 0, 5, true},
		{"the incumbent left the mesh", claim(3), can(7, 7, 7), 0, 5, true},
		{"the highest is not able", claim(3), can(alive|settled, 7, 7), 1, 5, true},
		{"the highest is gone", claim(3), can(able|settled, 7, 7), 1, 5, true},
		{"the highest is not settled", claim(3), can(able|alive, 7, 7), 1, 5, true},
		{"nobody is settled", claim(3), can(able|alive, able|alive, able|alive), 0, 5, true},
		{"the settled one is gone", claim(3), can(able|alive, able|alive, able|settled), 0, 5, true},
		{"the settled one is not able", claim(3), can(able|alive, able|alive, alive|settled), 0, 5, true},
		{"nobody is able", claim(0), can(alive|settled, alive|settled), -1, 0, false},
		{"nobody is there", claim(0), nil, -1, 0, false},
		{"no epoch is left", last, can(7, 7), -1, 0, false},
		{"the last epoch", last, can(7, 7, 7), 2, leadership.MaxEpoch - 1, false},
	} {
		d := leadership.Leader("m", tc.incumbent, tc.candidates)
		want := leadership.Decision{Claim: tc.claim}
		if tc.leader >= 0 {
			want.Leader = p[tc.leader]
			want.Fence = leadership.Fence{Epoch: tc.epoch, Rank: leadership.Rank("m", p[tc.leader])}
		}
		if d != want {
			t.Errorf("%s: %+v, want %+v", tc.name, d, want)
		}
	}
}

// Ranks go into records: a release that computes others would split the mesh.
func TestRankIsFixed(t *testing.T) {
	if got := leadership.Rank("model-uid", "peer-id"); got != 0x8689561fc73703d2 {
		t.Errorf("Rank = %#x", got)
	}
	if leadership.Rank("ab", "c") == leadership.Rank("a", "bc") {
		t.Error("uid and peer run into each other")
	}
}

func TestObey(t *testing.T) {
	f := func(epoch, rank uint64) leadership.Fence { return leadership.Fence{Epoch: epoch, Rank: rank} }
	for _, tc := range []struct {
		kept, ordered leadership.Fence
		want          bool
	}{
		{f(0, 0), f(1, 5), true},
		{f(0, 0), f(1<<40, 5), true},
		{f(0, 0), f(leadership.MaxEpoch-1, 5), true},
		{f(0, 0), f(leadership.MaxEpoch, 5), false},
		{f(0, 0), f(1<<63, 5), false},
		{f(3, 5), f(3, 5), true},
		{f(3, 5), f(3, 6), true},
		{f(3, 5), f(3, 4), false},
		{f(3, 5), f(2, 9), false},
		{f(3, 5), f(4, 0), true},
		{f(3, 5), f(3+leadership.MaxJump, 0), true},
		{f(3, 5), f(4+leadership.MaxJump, 0), false},
		{f(leadership.MaxEpoch-2, 5), f(leadership.MaxEpoch, 5), false},
	} {
		if got := leadership.Obey(tc.kept, tc.ordered); got != tc.want {
			t.Errorf("kept %v, ordered %v: %v", tc.kept, tc.ordered, got)
		}
	}
}

func TestFencesAreTotallyOrdered(t *testing.T) {
	fence := rapid.Custom(func(t *rapid.T) leadership.Fence {
		return leadership.Fence{Epoch: rapid.Uint64Range(0, 2).Draw(t, "epoch"), Rank: rapid.Uint64Range(0, 2).Draw(t, "rank")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := fence.Draw(t, "a"), fence.Draw(t, "b"), fence.Draw(t, "c")
		if a.Compare(b) != -b.Compare(a) || a.Less(b) != (a.Compare(b) < 0) || (a.Compare(b) == 0) != (a == b) {
			t.Fatalf("%v and %v", a, b)
		}
		if a.Less(b) && b.Less(c) && !a.Less(c) {
			t.Fatalf("%v, %v, %v", a, b, c)
		}
	})
}

func TestOrderOfCandidatesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []leadership.Candidate
		for i := range rapid.IntRange(0, 6).Draw(t, "peers") {
			list = append(list, leadership.Candidate{ID: fmt.Sprint("peer", i), Able: rapid.Bool().Draw(t, "able"),
				Alive: rapid.Bool().Draw(t, "alive"), Settled: rapid.Bool().Draw(t, "settled")})
		}
		claim := leadership.Claim{Peer: rapid.SampledFrom([]string{"", "peer0", "peer3"}).Draw(t, "incumbent"),
			Fence: leadership.Fence{Epoch: 7, Rank: 7}}
		want := leadership.Leader("m", claim, list)
		if got := leadership.Leader("m", claim, rapid.Permutation(list).Draw(t, "order")); got != want {
			t.Fatalf("%+v and %+v", want, got)
		}
	})
}

// One model's leadership moves little when peers come and go.
func TestRanksSpread(t *testing.T) {
	const models, peers = 2000, 10
	led := make(map[string]int)
	moved := 0
	for m := range models {
		uid := fmt.Sprint("model", m)
		var all []leadership.Candidate
		for i := range peers {
			all = append(all, leadership.Candidate{ID: fmt.Sprint("peer", i), Able: true, Alive: true, Settled: true})
		}
		before := leadership.Leader(uid, leadership.Claim{}, all).Leader
		led[before]++
		if after := leadership.Leader(uid, leadership.Claim{}, all[1:]).Leader; after != before {
			moved++
		}
	}
	for p, n := range led {
		if n < models/peers/2 || n > models/peers*2 {
			t.Errorf("%s leads %d of %d models", p, n, models)
		}
	}
	if moved != led["peer0"] {
		t.Errorf("%d models moved when the leader of %d went", moved, led["peer0"])
	}
}
