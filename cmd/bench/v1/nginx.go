//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"relay/cmd/stage"
)

// nginxConfig makes nginx a plain reverse proxy in front of the engine, which
// holds nothing back. One process, as many connections as are asked for, no log. It
// keeps no connections to the engine, which ends them unannounced: with keepalive it
// answers 502 now and then.
const nginxConfig = `daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr error;
worker_rlimit_nofile 16384;
events { worker_connections 8192; }
http {
  access_log off;
  client_body_temp_path %[1]s/nginx-body;
  proxy_temp_path %[1]s/nginx-proxy;
  fastcgi_temp_path %[1]s/nginx-f;
  uwsgi_temp_path %[1]s/nginx-u;
  scgi_temp_path %[1]s/nginx-s;
  client_body_buffer_size 1m;
  client_max_body_size 64m;
  keepalive_requests 1000000;
  server {
    listen %[3]s backlog=4096;
    location / {
      proxy_pass http://unix:%[2]s:;
      proxy_http_version 1.1;
      proxy_buffering off;
      proxy_read_timeout 600s;
    }
  }
}
`

// startNginx runs nginx in front of the engine's socket; stop ends it.
func startNginx(ctx context.Context, dir, socket string) (_ *way, stop func(), err error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		return nil, nil, errors.New("nginx is missing; on Debian: apt-get install nginx-light")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	address := l.Addr().String()
	l.Close()
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, dir, socket, address), 0o600); err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(program, "-c", config, "-p", dir, "-e", "stderr")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // Its status says that it was ended.
	}
	w := &way{name: "nginx", url: "http://" + address, client: keeping(), pids: []int{cmd.Process.Pid}}
	var last error
	if err := stage.Until(ctx, "nginx answers", func() bool {
		_, last = w.ask(ctx, body(1<<10, 1), nil)
		return last == nil
	}); err != nil {
		stop()
		return nil, nil, errors.Join(err, last, errors.New(said.String()))
	}
	return w, stop, nil
}
