package keys

import (
	"errors"
	"fmt"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

// KindUsage is the record kind of what keys have used. There is one record for each
// peer and first character of the keys' ids, <peer>/<character>, so that no record
// grows with all keys of a mesh. Each peer counts what came in at its own door; what
// a key has used is the sum over all peers.
//
// # What today is
//
// Clocks differ, and none decides for another machine. Each peer counts by days
// since 1970 in UTC of its own clock: when its day is another one, also an earlier
// one because a clock was put right, it begins at nothing again, and says so. A
// reader takes what a peer that is up says as it stands, whatever day that calls
// today. Of a peer that is gone, which could not say that its day is over, it takes
// what is of the day of its own clock, and no other. So with clocks that differ by
// some hours a key is given its day's tokens in parts, by each entrance at its own
// midnight, and never more than that entrance has used in its day.
const KindUsage = "usage"

const (
	// maxUsed bounds the keys of one usage record: with the longest figures that there
	// are it stays below record.MaxSize.
	maxUsed = 580
	// MaxKeys is how many keys a mesh may have: with that many no record is full.
	MaxKeys = 10_000
	// maxCount bounds every figure of a usage record, so that sums of them have room.
	maxCount = 1 << 50
)

// Used is what one key has used at one peer.
type Used struct {
	// Day is the day of the figures that follow, by the author's clock.
	Day int64 `cbor:"1,keyasint,omitempty"`
	// Prompt and Completion are tokens; Requests were let in, Refused were not.
	Prompt     int64 `cbor:"2,keyasint,omitempty"`
	Completion int64 `cbor:"3,keyasint,omitempty"`
	Requests   int64 `cbor:"4,keyasint,omitempty"`
	Refused    int64 `cbor:"5,keyasint,omitempty"`
	// Running are the requests under way, Minute those that were let in within the
	// last minute, when this was written.
	Running int64 `cbor:"6,keyasint,omitempty"`
	Minute  int64 `cbor:"7,keyasint,omitempty"`
	// The totals are since the key is in use at that peer, today included.
	TotalPrompt     int64 `cbor:"8,keyasint,omitempty"`
	TotalCompletion int64 `cbor:"9,keyasint,omitempty"`
	TotalRequests   int64 `cbor:"10,keyasint,omitempty"`
}

// plus adds up what peers say; the day is of no meaning then.
func (u Used) plus(o Used) Used {
	return Used{
		Prompt: u.Prompt + o.Prompt, Completion: u.Completion + o.Completion, Requests: u.Requests + o.Requests, Refused: u.Refused + o.Refused,
		Running: u.Running + o.Running, Minute: u.Minute + o.Minute,
		TotalPrompt: u.TotalPrompt + o.TotalPrompt, TotalCompletion: u.TotalCompletion + o.TotalCompletion, TotalRequests: u.TotalRequests + o.TotalRequests,
	}
}

// tokens are those of the day.
func (u Used) tokens() int64 { return u.Prompt + u.Completion }

// on is the same figures on another day: nothing was used on it yet.
func (u Used) on(day int64) Used {
	if u.Day != day {
		u.Day, u.Prompt, u.Completion, u.Requests, u.Refused = day, 0, 0, 0, 0
	}
	return u
}

// asked says whether somebody asked with the key between two records of one peer.
func (u Used) asked(before Used) bool {
	return u.TotalRequests != before.TotalRequests || u.TotalPrompt != before.TotalPrompt || u.TotalCompletion != before.TotalCompletion ||
		u.Running != before.Running || u.Day == before.Day && u.Refused != before.Refused
}

// count is n and more, no more than a record may say: beyond that none could be written.
func count(n, more int64) int64 { return min(n+more, maxCount) }

func (u Used) check() error {
	for _, n := range []int64{u.Prompt, u.Completion, u.Requests, u.Refused, u.Running, u.Minute, u.TotalPrompt, u.TotalCompletion, u.TotalRequests} {
		if n < 0 || n > maxCount {
			return fmt.Errorf("%d is no count", n)
		}
	}
	return nil
}

// usage is the payload of a usage record.
type usage struct {
	Keys map[string]Used `cbor:"1,keyasint,omitempty"`
}

// bucketOf is the part of the keys that one of them belongs to.
func bucketOf(key string) string { return key[:1] }

func usageID(author peer.ID, bucket string) string { return author.String() + "/" + bucket }

// decodeUsage reads a usage record and checks it.
func decodeUsage(r record.Record) (map[string]Used, error) {
	var u usage
	if err := record.Unmarshal(r.Payload, &u); err != nil {
		return nil, err
	}
	_, bucket, _ := strings.Cut(r.ID, "/")
	if len(bucket) != 1 || !isID(bucket) {
		return nil, errors.New("the record does not name the keys that it is about")
	}
	if len(u.Keys) > maxUsed {
		return nil, fmt.Errorf("%d keys in one record, at most %d are possible", len(u.Keys), maxUsed)
	}
	for key, used := range u.Keys {
		if key != LocalID && (len(key) != idLength || !isID(key)) || bucketOf(key) != bucket {
			return nil, fmt.Errorf("%.20q is no key of this record", key)
		}
		if err := used.check(); err != nil {
			return nil, fmt.Errorf("key %s: %w", key, err)
		}
	}
	return u.Keys, nil
}

// isID says whether a text could be (a part of) the id of a key.
func isID(text string) bool { return strings.Trim(text, alphabet) == "" }

// UsageKind registers the kind.
func UsageKind() record.Kind {
	return record.Kind{Name: KindUsage, Rule: record.Owned, Owner: record.OwnerIsFirst, Check: func(r record.Record) error {
		_, err := decodeUsage(r)
		return err
	}}
}
