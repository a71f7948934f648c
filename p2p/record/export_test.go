package record

import (
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/record"
)

// SealBody signs any bytes in the place of a record's body.
func SealBody(encoded []byte, key crypto.PrivKey) ([]byte, error) {
	env, err := record.Seal(&enveloped{encoded}, key)
	if err != nil {
		return nil, err
	}
	return env.Marshal()
}

// CheckFrame decodes a frame's body and says how many parts it has.
func CheckFrame(body []byte) (parts int, err error) {
	f, err := decodeFrame(body)
	if err != nil {
		return 0, err
	}
	return len(f.Items) + len(f.Want) + len(f.Records), nil
}

// EncodeCBOR encodes whatever it is given.
func EncodeCBOR(v any) []byte {
	data, err := encoding.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

const (
	MaxHeld      = maxHeld
	MaxHeldBytes = maxHeldBytes
	MaxFrame     = maxFrame
	MaxJudged    = maxJudged
)

// Queued is the number of changes that wait for the next write.
func (t *Table) Queued() int {
	t.queueing.Lock()
	defer t.queueing.Unlock()
	return len(t.queue)
}

// OfferAll offers records in one batch and returns why each was refused.
func (t *Table) OfferAll(records ...Signed) []error {
	batch := make([]*Signed, len(records))
	for i := range records {
		batch[i] = &records[i]
	}
	var errs []error
	for _, r := range t.offerAll(batch) {
		errs = append(errs, r.err)
	}
	return errs
}

// Cost is the memory that a record takes.
func Cost(s Signed) int64 { return cost(&s) }
