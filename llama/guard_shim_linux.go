package llama

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// guardShim makes the network in which this shim was started work, listens in it
// for relay, and passes relay a socket for every question until relay ends.
func guardShim(o guardOrder) error {
	unix.CloseOnExec(guardFD) // not for the engine
	f := os.NewFile(guardFD, "guard")
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("its end of the guard's sockets: %w", err)
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("its end of the guard's sockets is something else")
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("the loopback device: %w", err)
	}
	var fds []int
	defer func() { closeAll(fds) }() // relay has them
	for _, port := range o.Listen {
		fd, err := listenOn(port)
		if err != nil {
			return fmt.Errorf("port %d: %w", port, err)
		}
		fds = append(fds, fd)
	}
	if len(fds) > 0 {
		if err := pass(conn, 0, fds...); err != nil {
			return err
		}
	}
	go func() { // It ends with relay, or with this process.
		data := make([]byte, 8)
		for {
			n, err := conn.Read(data)
			if err != nil || n != 4 {
				return
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			number := binary.BigEndian.Uint32(data)
			if err != nil {
				err = pass(conn, number)
			} else {
				err = errors.Join(pass(conn, number, fd), unix.Close(fd))
			}
			if err != nil {
				return
			}
		}
	}()
	return nil
}

// pass sends relay the answer to a question.
func pass(conn *net.UnixConn, number uint32, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := conn.WriteMsgUnix(binary.BigEndian.AppendUint32(nil, number), rights, nil)
	return err
}

// listenOn is a socket that listens on a port of the loopback address.
func listenOn(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.Listen(fd, 16)
	}
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// loopbackUp switches on the loopback device, which is off in a new network.
func loopbackUp() (err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return err
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
