package p2p

import (
	"cmp"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// withdrawExtra takes back countersignatures of this peer's by which an invite
// was used more often than it may be, on two sides of a cut: the earlier stamps
// stand. An invite that has expired by this peer's own clock is left alone, so
// that an old one that leaked can never oust a member later.
func (n *Node) withdrawExtra(now time.Time) {
	type admission struct {
		record.Signed
		stamp  int64
		joiner peer.ID
	}
	roster := n.Roster()
	uses := map[string][]admission{} // By invite.
	for _, s := range n.table.List(membership.KindAdmission) {
		if invite, joiner, stamp, ok := roster.Admission(s.Record); ok && n.isMember(s.Author) {
			uses[invite] = append(uses[invite], admission{s, stamp, joiner})
		}
	}
	for invite, list := range uses {
		issue, _, _, ok := roster.Issue(invite, "")
		if !ok || now.UnixMilli() >= issue.Expires {
			continue
		}
		slices.SortFunc(list, func(a, b admission) int {
			return cmp.Or(cmp.Compare(a.stamp, b.stamp), cmp.Compare(a.joiner, b.joiner))
		})
		seen := map[peer.ID]bool{} // One peer admitted twice is one use.
		for _, a := range list {
			if seen[a.joiner] {
				continue
			}
			if len(seen) < issue.Uses {
				seen[a.joiner] = true
				continue
			}
			if a.Author != n.self {
				continue
			}
			n.log.Warn("an invite was used more often than it may be: the later admission is withdrawn", "invite", invite, "peer", short(a.joiner))
			if _, err := n.table.DeleteOwned(membership.KindAdmission, a.ID); err != nil {
				n.log.Error("admission not withdrawn", "error", err)
			}
		}
	}
}
