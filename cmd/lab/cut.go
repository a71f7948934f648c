//go:build linux

package lab

import (
	"fmt"
	"strings"
)

// Drop loses what one machine sends to another from now on; the other direction
// stays. Both are on the switch.
func (l *Lab) Drop(from, to string) error { return l.pairs("add", [][2]string{{from, to}}) }

// Cut separates two groups of machines on the switch, both ways.
func (l *Lab) Cut(a, b []string) error { return l.pairs("add", between(a, b)) }

// Mend undoes Cut for the same groups.
func (l *Lab) Mend(a, b []string) error { return l.pairs("delete", between(a, b)) }

func between(a, b []string) [][2]string {
	var pairs [][2]string
	for _, x := range a {
		for _, y := range b {
			pairs = append(pairs, [2]string{x, y}, [2]string{y, x})
		}
	}
	return pairs
}

// pairs changes what the switch drops, all at one moment.
func (l *Lab) pairs(what string, pairs [][2]string) error {
	var elements []string
	for _, p := range pairs {
		from, to := l.machines[p[0]], l.machines[p[1]]
		if from == nil || to == nil {
			return unknown(p[0] + " or " + p[1])
		}
		elements = append(elements, fmt.Sprintf("%s . %s", from.addr, to.addr))
	}
	return nft(l.hub(), fmt.Sprintf("%s element bridge lab cut { %s }", what, strings.Join(elements, ", ")))
}

// Pull pulls a machine's cable: its interface loses the carrier at once.
func (l *Lab) Pull(name string) error { return l.plug(name, "down") }

// Plug puts the cable back.
func (l *Lab) Plug(name string) error { return l.plug(name, "up") }

func (l *Lab) plug(name, state string) error {
	m := l.machines[name]
	if m == nil {
		return unknown(name)
	}
	return ip(m.at, fmt.Sprintf("link set %s %s", m.port, state))
}
