package p2p

import (
	"cmp"
	"slices"
	"strings"
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
		joiner string
	}
	uses := map[string][]admission{} // By invite.
	for _, s := range n.table.List(membership.KindAdmission) {
		var c membership.Countersign
		parts := strings.Split(s.ID, "/")
		if len(parts) == 3 && n.isMember(s.Author) && record.Unmarshal(s.Payload, &c) == nil {
			uses[parts[1]] = append(uses[parts[1]], admission{s, c.Stamp, parts[2]})
		}
	}
	for invite, list := range uses {
		issue, _, _, ok := n.Roster().Issue(invite, peer.ID(""))
		if !ok || now.UnixMilli() >= issue.Expires {
			continue
		}
		slices.SortFunc(list, func(a, b admission) int {
			return cmp.Or(cmp.Compare(a.stamp, b.stamp), cmp.Compare(a.joiner, b.joiner))
		})
		seen := map[string]bool{} // One peer admitted twice is one use.
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
			n.log.Warn("an invite was used more often than it may be: the later admission is withdrawn", "invite", invite, "peer", a.joiner)
			if _, err := n.table.DeleteOwned(membership.KindAdmission, a.ID); err != nil {
				n.log.Error("admission not withdrawn", "error", err)
			}
		}
	}
}
