//go:build !linux

package llama

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os/exec"
	"runtime"
)

// errNoGuard: there are no networks of a program's own on this system.
var errNoGuard = errors.New("there is no guard for them on " + runtime.GOOS)

// A network of an engine's own cannot be had here: none is ever made.
type network struct{}

func newNetwork() (*network, error) { return nil, errNoGuard }

func (*network) putIn(*exec.Cmd) {}
func (*network) started()        {}
func (*network) close()          {}

func (*network) listeners(context.Context, int) ([]net.Listener, error) { return nil, errNoGuard }

func (*network) dial(context.Context, int) (net.Conn, error) { return nil, errNoGuard }

// tryGuard says why ports cannot be guarded.
func tryGuard(context.Context, []string) error { return errNoGuard }

// guardShim is never asked for here.
func guardShim(guardOrder) error { return errNoGuard }

// wakeGPU is never asked for here.
func wakeGPU(*slog.Logger) {}
