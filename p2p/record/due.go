package record

import "fmt"

// due is what the other side of an exchange may send: each key once, and nothing
// lower than what was listed for it.
type due struct {
	listed map[string]Version
	// others are the buckets of which keys may come that were not listed; nil
	// where there are none.
	others *bitmap
	came   map[string]struct{}
}

func newDue(listed map[string]Version, others *bitmap) *due {
	return &due{listed, others, make(map[string]struct{})}
}

// check says whether a record is lower than what was listed, which no honest
// peer sends: see sendRecords. The error is ErrProtocol, for what nobody asked
// for.
func (d *due) check(s *Signed) (low bool, err error) {
	key := s.Key()
	version, listed := d.listed[key]
	if !listed && (d.others == nil || !d.others.has(bucketOf(key))) {
		return false, fmt.Errorf("a record that was not asked for: %w", ErrProtocol)
	}
	if _, twice := d.came[key]; twice {
		return false, fmt.Errorf("a record sent twice: %w", ErrProtocol)
	}
	d.came[key] = struct{}{}
	return listed && s.Version.Less(version), nil
}
