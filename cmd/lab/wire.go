//go:build linux

package lab

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Slow is what a bad link does to every packet, in each direction.
type Slow struct {
	// Delay is how long a packet is on its way.
	Delay time.Duration
	// Loss is the share of packets that never arrive, 0 to 1.
	Loss float64
	// Rate is in bytes per second; 0 is as fast as it goes.
	Rate int
	// Seed is what the losses follow from.
	Seed uint64
}

const (
	// frameBytes is more than a frame on a network with an MTU of 1500.
	frameBytes = 2048
	// queued bounds the frames under way in one direction: more are lost, as at
	// any full router.
	queued = 1024
)

// wire is a cable whose frames go through this process: TAP interfaces at both
// ends. So it is slow for everything alike, and a lost packet is a lost packet
// to TCP as well, which no proxy of connections can do.
type wire struct {
	ends [2]*os.File
	work sync.WaitGroup
}

// AddSlow puts a machine with a bad cable on the switch.
func (l *Lab) AddSlow(name string, s Slow) error {
	m, err := l.enrol(name, l.hub())
	if err != nil {
		return err
	}
	near, err := openTAP(m.namespace, cable)
	if err != nil {
		return err
	}
	far, err := openTAP(l.hub(), m.port)
	if err != nil {
		_ = near.Close()
		return err
	}
	w := &wire{ends: [2]*os.File{near, far}}
	w.work.Go(func() { carry(near, far, s, 1) })
	w.work.Go(func() { carry(far, near, s, 2) })
	l.wires = append(l.wires, w)
	if err := ip(l.hub(), fmt.Sprintf("link set %s master hub up", m.port)); err != nil {
		return err
	}
	return m.finish()
}

func openTAP(namespace, name string) (*os.File, error) {
	var f *os.File
	err := inside(namespace, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("lab: open /dev/net/tun: %w", err)
		}
		request, err := unix.NewIfreq(name)
		if err == nil {
			request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		if err != nil {
			_ = unix.Close(fd)
			return fmt.Errorf("lab: make interface %s: %w", name, err)
		}
		f = os.NewFile(uintptr(fd), name)
		return nil
	})
	return f, err
}

type frame struct {
	data []byte
	due  time.Time
}

// carry moves frames one way until the file is closed.
func carry(from, to *os.File, s Slow, stream uint64) {
	under := make(chan frame, queued)
	var sender sync.WaitGroup
	sender.Go(func() {
		wait := time.NewTimer(0)
		defer wait.Stop()
		for f := range under {
			if d := time.Until(f.due); d > 0 {
				wait.Reset(d)
				<-wait.C
			}
			_, _ = to.Write(f.data) // The other end may be down: then it is lost.
		}
	})
	defer sender.Wait()
	defer close(under)
	chance := rand.New(rand.NewPCG(s.Seed, stream))
	free := time.Now() // When the line has sent what it was given.
	for {
		data := make([]byte, frameBytes)
		n, err := from.Read(data)
		if err != nil {
			return
		}
		if chance.Float64() < s.Loss {
			continue
		}
		if now := time.Now(); free.Before(now) {
			free = now
		}
		if s.Rate > 0 {
			free = free.Add(time.Duration(n) * time.Second / time.Duration(s.Rate))
		}
		select {
		case under <- frame{data[:n], free.Add(s.Delay)}:
		default:
		}
	}
}

// stop closes both ends, and with them their interfaces.
func (w *wire) stop() {
	for _, f := range w.ends {
		_ = f.Close()
	}
	w.work.Wait()
}
