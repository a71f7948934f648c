package llama

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A network is one of an engine's own, with nothing in it but the engine, its shim
// and a loopback device: no other program of this machine can connect to what
// listens there. The shim, which lives in it, passes sockets of it to relay over a
// pair of sockets that it has inherited. It ends with the shim and the engine.
//
// This is relay's side. Its methods but close may be called at any time by anybody.
type network struct {
	shims *os.File // the shim's end, until the shim has it
	conn  *net.UnixConn
	turn  chan struct{} // held by the one who asks
	asked uint32        // the number of the last question
}

const (
	// guardFD is the shim's end of the pair, as the shim knows it.
	guardFD = 3
	// answerTime is how long the shim may take to pass a socket.
	answerTime = 5 * time.Second
)

func newNetwork() (*network, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: no sockets for its guard: %w", ErrState, err)
	}
	ours, shims := os.NewFile(uintptr(fds[0]), "guard"), os.NewFile(uintptr(fds[1]), "guard")
	conn, err := net.FileConn(ours)
	if err = errors.Join(err, ours.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: no sockets for its guard: %w", ErrState, err), shims.Close())
	}
	return &network{shims: shims, conn: conn.(*net.UnixConn), turn: make(chan struct{}, 1)}, nil
}

// putIn has a shim start in the network. Root makes one as it is; others, and root
// without a right that it takes, first have to become root of a part of the system in
// which there is nothing, under their own user id, where the shim keeps the one right
// that it needs: to switch on the loopback device.
func (n *network) putIn(cmd *exec.Cmd) {
	cmd.ExtraFiles = []*os.File{n.shims} // the first is guardFD
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	a := cmd.SysProcAttr
	a.Cloneflags |= unix.CLONE_NEWNET
	if mayMakeNetworks() {
		return
	}
	a.Cloneflags |= unix.CLONE_NEWUSER
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	a.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
}

// mayMakeNetworks says whether this process may make a network as it is, and its
// shim switch on the loopback device there.
func mayMakeNetworks() bool {
	const needed = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_NET_ADMIN
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	return unix.Capget(&header, &have[0]) == nil && have[0].Effective&needed == needed
}

// started is called when the shim has its end.
func (n *network) started() { _ = n.shims.Close() }

// close gives up the network. It may be called more than once.
func (n *network) close() { _ = errors.Join(n.shims.Close(), n.conn.Close()) }

// listeners takes what the shim listens on: count sockets, in the order of the
// ports that it was told. It is called once, before any dial.
func (n *network) listeners(ctx context.Context, count int) (list []net.Listener, err error) {
	if err := n.conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = n.conn.SetReadDeadline(time.Unix(1, 0)) })()
	fds, err := n.receive(0)
	if err == nil && len(fds) != count {
		err = fmt.Errorf("%w: its shim listens on %d ports instead of %d", ErrEngine, len(fds), count)
	}
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "listener")
		l, err2 := net.FileListener(f)
		if err = errors.Join(err, err2, f.Close()); err2 == nil {
			list = append(list, l)
		}
	}
	if err != nil {
		for _, l := range list {
			_ = l.Close() // nobody uses it
		}
		return nil, err
	}
	return list, nil
}

// dial connects to a port of the network. Many may dial at once.
func (n *network) dial(ctx context.Context, port int) (net.Conn, error) {
	f, err := n.socket(ctx)
	if err != nil {
		return nil, err
	}
	c, err := connect(ctx, f, port)
	if err2 := f.Close(); err == nil && err2 != nil {
		err = errors.Join(err2, c.Close())
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}, Err: err}
	}
	return c, nil
}

// socket asks the shim for a socket that is not connected.
func (n *network) socket(ctx context.Context) (*os.File, error) {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	n.asked++
	if err := n.conn.SetDeadline(answerBy(ctx)); err != nil {
		return nil, err
	}
	if _, err := n.conn.Write(binary.BigEndian.AppendUint32(nil, n.asked)); err != nil {
		return nil, err
	}
	fds, err := n.receive(n.asked)
	if err != nil {
		return nil, err
	}
	if len(fds) != 1 {
		closeAll(fds)
		return nil, fmt.Errorf("%w: its shim has no socket", ErrEngine)
	}
	return os.NewFile(uintptr(fds[0]), "socket"), nil
}

// answerBy is when the shim must have answered.
func answerBy(ctx context.Context) time.Time {
	limit := time.Now().Add(answerTime)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		return d
	}
	return limit
}

// receive waits for the answer to a question. Answers that came too late for others
// before are dropped. The deadline is the caller's.
func (n *network) receive(number uint32) ([]int, error) {
	data, rights := make([]byte, 8), make([]byte, unix.CmsgSpace(4*maxRemotes))
	for {
		size, rightsSize, _, _, err := n.conn.ReadMsgUnix(data, rights)
		if err != nil {
			return nil, err
		}
		fds, err := passed(rights[:rightsSize])
		switch {
		case size == 0:
			return nil, fmt.Errorf("%w: its shim has ended", ErrEngine)
		case err != nil || size != 4:
			closeAll(fds)
			return nil, fmt.Errorf("%w: its shim passes something else than sockets", ErrEngine)
		case binary.BigEndian.Uint32(data) == number:
			return fds, nil
		}
		closeAll(fds)
	}
}

// passed are the file descriptors in a message.
func passed(rights []byte) (fds []int, err error) {
	if len(rights) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	for _, m := range messages {
		more, err2 := unix.ParseUnixRights(&m)
		fds, err = append(fds, more...), errors.Join(err, err2)
	}
	return fds, err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// connect connects a socket to a port of the network that it belongs to.
func connect(ctx context.Context, f *os.File, port int) (net.Conn, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	to := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	var result error
	if err := raw.Control(func(fd uintptr) { result = unix.Connect(int(fd), to) }); err != nil {
		return nil, err
	}
	if errors.Is(result, unix.EINPROGRESS) { // Others are in line before it.
		defer context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })()
		err := raw.Write(func(fd uintptr) bool {
			var code int
			if code, result = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); result == nil && code != 0 {
				result = unix.Errno(code)
			}
			if result != nil {
				return true
			}
			_, err := unix.Getpeername(int(fd))
			return err == nil // Not yet: it is called again when there is news.
		})
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	if result != nil {
		return nil, result
	}
	return net.FileConn(f)
}

// tryGuard starts a shim in a network, which connects to itself there and ends. The
// error says why that does not work: errRefused where it never will.
func tryGuard(ctx context.Context, shim []string) error {
	cmd, err := shimCommand(shim)
	if err != nil {
		return err
	}
	n, err := newNetwork()
	if err != nil {
		return err
	}
	defer n.close()
	n.putIn(cmd)
	ownGroup(cmd)
	cmd.Env = engineEnv(os.Environ(), os.DevNull, os.DevNull)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out := &bounded{max: maxOrder}
	cmd.Stdout = out
	err = cmd.Start()
	n.started()
	if err != nil {
		return errors.Join(notStarted(err), in.Close())
	}
	// It ends with its input, or is killed.
	defer context.AfterFunc(ctx, func() { _ = killGroup(cmd.Process) })()
	const port = 1024
	err = json.NewEncoder(in).Encode(order{Guard: &guardOrder{Listen: []int{port}}})
	list, err2 := n.listeners(ctx, 1)
	if err = errors.Join(err, err2); err == nil {
		c, err2 := n.dial(ctx, port)
		if err = errors.Join(err2, list[0].Close()); err2 == nil {
			err = errors.Join(err, c.Close())
		}
	}
	err = errors.Join(err, in.Close())
	_ = cmd.Wait() // what it said counts
	var e event
	if json.Unmarshal(out.Bytes(), &e) == nil && e.Failed != "" {
		return fmt.Errorf("%w (%s)", errRefused, e.Failed)
	}
	if err != nil {
		return fmt.Errorf("a program in a network of its own cannot be reached (%w)", err)
	}
	return nil
}

// notStarted says why a shim in a network did not start: by errRefused where the
// system said that it may not, and not that this once it could not.
func notStarted(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno // without the program that it was about
	}
	switch errno {
	case unix.EPERM, unix.EINVAL, unix.ENOSPC, unix.EUSERS: // the last two: none may be made
		return fmt.Errorf("%w (%w)", errRefused, err)
	}
	return fmt.Errorf("a program in a network of its own cannot be started (%w)", err)
}
