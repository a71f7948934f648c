//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
)

// versusRsync: a pull against `rsync -W --inplace` over ssh, with the cipher that
// ssh chooses by itself, and with the one that processors help with, as for TLS.
func versusRsync(ctx context.Context) error {
	for _, name := range []string{"rsync", "ssh", "ssh-keygen", sshd} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is missing: apt-get install rsync openssh-client openssh-server", name)
		}
	}
	return inMemory(2*fileBytes, func(dir string) error {
		shell, stop, err := startSSH(ctx, dir)
		if err != nil {
			return err
		}
		defer stop()
		return onPair(ctx, dir, func(p *pair) error {
			by := func(shell string) func(context.Context, string) (float64, error) {
				return func(ctx context.Context, path string) (float64, error) {
					got := filepath.Join(dir, "synced")
					took, err := timed(ctx, func(ctx context.Context) *exec.Cmd {
						return exec.CommandContext(ctx, "rsync", "-W", "--inplace", "-e", shell, "127.0.0.1:"+path, got)
					})
					if err != nil {
						return 0, err
					}
					return took, errors.Join(same(path, got), os.Remove(got))
				}
			}
			return race(ctx, dir, way{do: p.pulling},
				way{"pull_vs_rsync", by(shell)}, way{"pull_vs_rsync_gcm", by(shell + " -c aes128-gcm@openssh.com")})
		})
	})
}

// sshd wants to be called by its whole path.
const sshd = "/usr/sbin/sshd"

// startSSH runs a server on loopback that this user alone can enter, with keys
// made for it, and returns the command that reaches it.
func startSSH(ctx context.Context, dir string) (shell string, stop func(), err error) {
	who, err := user.Current()
	if err != nil {
		return "", nil, err
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, key := range []string{"host_key", "user_key"} {
		if out, err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f", in(key)).CombinedOutput(); err != nil {
			return "", nil, fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	hostKey, err := os.ReadFile(in("host_key.pub"))
	if err != nil {
		return "", nil, err
	}
	files := map[string]string{
		"known_hosts": fmt.Sprintf("[127.0.0.1]:%d %s", port, hostKey),
		"sshd_config": strings.Join([]string{
			"ListenAddress 127.0.0.1", fmt.Sprint("Port ", port), "HostKey " + in("host_key"), "PidFile none",
			"AuthorizedKeysFile " + in("user_key.pub"), "AllowUsers " + who.Username, "PermitRootLogin prohibit-password",
			// The folder is in one that everybody may write to.
			"StrictModes no", "UsePAM no", "PasswordAuthentication no", "KbdInteractiveAuthentication no", "",
		}, "\n"),
	}
	for name, text := range files {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			return "", nil, err
		}
	}
	clean, err := separation()
	if err != nil {
		return "", nil, err
	}
	_, end, err := beside(ctx, exec.CommandContext(ctx, sshd, "-D", "-e", "-f", in("sshd_config")), "Server listening on")
	if err != nil {
		clean()
		return "", nil, err
	}
	return fmt.Sprintf("ssh -F none -p %d -l %s -i %s -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes -o GlobalKnownHostsFile=none -o UserKnownHostsFile=%s",
		port, who.Username, in("user_key"), in("known_hosts")), func() { end(); clean() }, nil
}

// separation makes the folder that root's sshd is built to want, where the
// system's own has not made it.
func separation() (clean func(), err error) {
	const folder = "/run/sshd"
	if os.Getuid() != 0 {
		return func() {}, nil
	}
	switch err := os.Mkdir(folder, 0o755); {
	case errors.Is(err, os.ErrExist):
		return func() {}, nil
	case err != nil:
		return nil, err
	}
	return func() { _ = os.Remove(folder) }, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
