package llama

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The first message of the protocol between engines, which stays what it is in all
// versions: its command, the size of what follows, and what the asker can do, which
// is nothing special. The answer is its size, the version in three bytes and one that
// means nothing, and what the server can do.
const (
	helloCommand  = 14
	helloAsk      = 24
	helloTime     = 5 * time.Second
	maxHelloBytes = 1024
)

// hello asks the RPC server at the other end of c for its version, such as "6.0.0".
func hello(c net.Conn) (version string, err error) {
	ask := make([]byte, 1+8+helloAsk)
	ask[0] = helloCommand
	binary.LittleEndian.PutUint64(ask[1:], helloAsk)
	if _, err := c.Write(ask); err != nil {
		return "", err
	}
	head := make([]byte, 8)
	if _, err := io.ReadFull(c, head); err != nil {
		return "", err
	}
	size := binary.LittleEndian.Uint64(head)
	if size < 3 || size > maxHelloBytes {
		return "", fmt.Errorf("%w: it does not speak the RPC protocol", ErrEngine)
	}
	answer := make([]byte, size)
	if _, err := io.ReadFull(c, answer); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%d.%d", answer[0], answer[1], answer[2]), nil
}

// awaitHello waits until the server has said that it speaks that version. It returns
// errNotReady, with what was seen last, where ctx is over first.
func (r *RPCServer) awaitHello(ctx context.Context, version string) error {
	wait := pollFirst
	for {
		err := r.hello(ctx, version)
		if err == nil || errors.Is(err, ErrEngine) && r.Err() == nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-r.Done():
			timer.Stop()
			return r.Err()
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", errNotReady, err)
		case <-timer.C:
		}
		wait = min(2*wait, pollLast)
	}
}

// hello asks once, on a connection of its own. The error is ErrEngine where there was
// an answer that must not be.
func (r *RPCServer) hello(ctx context.Context, version string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	c, err := r.Dial(ctx)
	if err != nil {
		return fmt.Errorf("it does not listen: %v", err) // what a guard says of a shim that has ended is no answer
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	deadline, _ := ctx.Deadline() // it has one
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	has, err := hello(c)
	if err == nil && has != version {
		err = fmt.Errorf("%w: it speaks version %s of the RPC protocol, not %s", ErrEngine, has, version)
	}
	return err
}
