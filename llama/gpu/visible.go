package gpu

import (
	"slices"
	"strconv"
	"strings"
)

// shown says which cards the maker's runtime shows the engine, and in which
// order.
type shown struct {
	cards   []card
	hidden  map[int]string // By index: the variable that hides it.
	ordered bool           // cards are in the runtime's own order.
}

// visibleNvidia goes by CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, as CUDA
// does: an entry that it cannot use ends the list.
func visibleNvidia(cards []card, env Env) shown {
	const variable = "CUDA_VISIBLE_DEVICES"
	byBus := true // So the engine is told, where its owner tells it nothing else.
	if order, set := env("CUDA_DEVICE_ORDER"); set {
		byBus = order == "PCI_BUS_ID"
	}
	if list, set := env(variable); set {
		return choose(cards, list, variable, byBus)
	}
	return shown{cards: cards, ordered: byBus}
}

// visibleAMD goes by the variables of ROCm, one after the other. In which order
// ROCm has the cards no tool says for sure.
func visibleAMD(cards []card, env Env) shown {
	s := shown{cards: cards, hidden: map[int]string{}}
	second := "HIP_VISIBLE_DEVICES"
	if _, set := env(second); !set {
		second = "CUDA_VISIBLE_DEVICES"
	}
	for _, variable := range []string{"ROCR_VISIBLE_DEVICES", second} {
		if list, set := env(variable); set {
			next := choose(s.cards, list, variable, len(cards) == 1)
			for i, why := range next.hidden {
				s.hidden[i] = why
			}
			s.cards = next.cards
		}
	}
	return s
}

// choose takes the cards that a list names, by number (in the order of cards,
// where that is the runtime's), or by UUID or the beginning of one.
func choose(cards []card, list, variable string, ordered bool) shown {
	s := shown{hidden: map[int]string{}, ordered: true}
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		if strings.HasPrefix(entry, "MIG-") { // A part of a card: the engine's list counts.
			return shown{cards: cards}
		}
		if n, err := strconv.Atoi(entry); err == nil {
			if !ordered && n >= 0 { // Which one that is cannot be told.
				return shown{cards: cards}
			}
			if n < 0 || n >= len(cards) {
				break
			}
			s.cards = append(s.cards, cards[n])
			continue
		}
		i, ok := byUUID(cards, entry)
		if !ok {
			break
		}
		s.cards = append(s.cards, cards[i])
	}
	for _, c := range cards {
		if !slices.ContainsFunc(s.cards, func(v card) bool { return v.index == c.index }) {
			s.hidden[c.index] = variable
		}
	}
	return s
}

// byUUID finds the one card whose UUID begins so.
func byUUID(cards []card, prefix string) (index int, ok bool) {
	if len(prefix) <= len("GPU-") || !strings.HasPrefix(prefix, "GPU-") {
		return 0, false
	}
	for i, c := range cards {
		if len(c.uuid) >= len(prefix) && strings.EqualFold(c.uuid[:len(prefix)], prefix) {
			if ok {
				return 0, false
			}
			index, ok = i, true
		}
	}
	return index, ok
}
