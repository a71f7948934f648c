package llama

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// connectedBy fails where the other end of a connection from this machine to itself
// is not a socket of the process pid.
func connectedBy(c net.Conn, pid int) error {
	inode, err := otherEnd("/proc/net/tcp", c)
	if err != nil {
		return err
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("the engine's sockets cannot be seen: %w", err)
	}
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && to == "socket:["+inode+"]" {
			return nil
		}
	}
	return fmt.Errorf("it is not the engine's, but another program's on this machine")
}

// otherEnd finds the inode of the socket that c is connected to in a table as the
// kernel's of IPv4.
func otherEnd(table string, c net.Conn) (string, error) {
	from, ok1 := c.RemoteAddr().(*net.TCPAddr)
	to, ok2 := c.LocalAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("it is not by TCP")
	}
	data, err := os.ReadFile(table)
	if err != nil {
		return "", err
	}
	local, remote := []byte(inTable(from)), []byte(inTable(to))
	for line := range bytes.Lines(data) {
		//   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
		if f := bytes.Fields(line); len(f) > 9 && bytes.Equal(f[1], local) && bytes.Equal(f[2], remote) {
			return string(f[9]), nil
		}
	}
	return "", fmt.Errorf("nobody is at its other end")
}

// inTable is an address as the kernel writes it: the address in the order that this
// machine has numbers in, the port as it is.
func inTable(a *net.TCPAddr) string {
	ip := binary.NativeEndian.Uint32(a.IP.To4())
	return fmt.Sprintf("%08X:%04X", ip, a.Port)
}
