package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"relay/api"
	"relay/scheduler"
	"relay/store"
)

// maxAnswer bounds an answer of the control API, in bytes.
const maxAnswer = 64 << 20

// errNoPeer says that no peer runs here.
var errNoPeer error = scheduler.Errorf(scheduler.Unreachable, "no peer runs on this machine: start it with `relay up`")

// client talks to the peer that runs on this machine.
type client struct{ http *http.Client }

func newClient() (*client, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	tree, err := store.TreeAt(dir)
	if err != nil {
		return nil, err
	}
	switch folder, err := os.Stat(tree.Root); {
	case errors.Is(err, os.ErrNotExist):
		return nil, errNoPeer
	case err != nil:
		return nil, fmt.Errorf("the state folder %s cannot be used: %w (RELAY_STATE_DIR names another)", tree.Root, cause(err))
	case !folder.IsDir():
		return nil, fmt.Errorf("the state folder %s is no folder (RELAY_STATE_DIR names another)", tree.Root)
	}
	path, err := controlSocket(tree)
	if err != nil {
		return nil, err
	}
	return &client{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}}}, nil
}

func (c *client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://relay"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(r)
	switch {
	case errors.Is(err, os.ErrNotExist) || isRefused(err):
		return nil, errNoPeer
	case errors.Is(err, os.ErrPermission):
		return nil, errors.New("the peer on this machine belongs to another user: ask as that user, or name your own folder with RELAY_STATE_DIR")
	case err != nil:
		return nil, fmt.Errorf("the peer on this machine does not answer: %w", cause(err))
	}
	return response, nil
}

// ask asks one question of the peer that runs here.
func ask[T any](ctx context.Context, method, path string, body any) (T, error) {
	var result T
	c, err := newClient()
	if err != nil {
		return result, err
	}
	response, err := c.do(ctx, method, path, body)
	if err != nil {
		return result, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return result, err
	}
	if response.StatusCode != http.StatusOK {
		return result, refusalIn(data, response.Status)
	}
	if err := json.Unmarshal(data, &result); err != nil {
		return result, fmt.Errorf("the peer's answer cannot be read (is it of another version?): %w", err)
	}
	return result, nil
}

// follow starts long work on the peer that runs here, and reads it to its end.
func follow[T any](ctx context.Context, path string, body any, progress func(api.ProgressLine)) (T, error) {
	var none T
	c, err := newClient()
	if err != nil {
		return none, err
	}
	response, err := c.do(ctx, http.MethodPost, path, body)
	if err != nil {
		return none, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		return none, refusalIn(data, response.Status)
	}
	return api.ReadLines[T](response.Body, progress)
}

func refusalIn(data []byte, status string) error {
	var line struct {
		Error *api.ControlError `json:"error"`
	}
	if err := json.Unmarshal(data, &line); err != nil || line.Error == nil {
		return fmt.Errorf("the peer answered %s", status)
	}
	return line.Error
}
