package ledger

import "fmt"

// Shortage says that there is not memory enough on one device; all figures are
// bytes.
type Shortage struct {
	Device           string
	Need, Free, Lent uint64
}

// Passing says that the memory would do if nothing else had any of it, so that
// asking again later may help.
func (s *Shortage) Passing() bool { return s.Need <= s.Lent }

func (s *Shortage) Error() string {
	switch {
	case s.Lent == 0:
		return fmt.Sprintf("needs %s on %s, no memory is lent there", size(s.Need), s.Device)
	case s.Passing():
		return fmt.Sprintf("needs %s on %s, %s of the %s lent there is free now", size(s.Need), s.Device, size(s.Free), size(s.Lent))
	}
	return fmt.Sprintf("needs %s on %s, %s is lent there in all", size(s.Need), s.Device, size(s.Lent))
}

// Reason is the word for the error, from the closed list in scheduler.
func (s *Shortage) Reason() string { return "no_capacity" }

func size(bytes uint64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}
