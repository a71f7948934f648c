package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"
)

// control is a connection to a peer's control socket that is kept, for looking
// often: no process is started, and the socket is reached from everywhere on
// this machine, whatever network the peer is in.
func (p *Peer) control() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(p.state, "run", "control.sock"))
		},
	}}
}

// controlPatience bounds one question.
const controlPatience = 10 * time.Second

// Ask puts one question to a peer's control socket: what commands do, without a
// process. A nil question is a GET. The answer is read into answer unless that
// is nil.
func (p *Peer) Ask(ctx context.Context, path string, question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, controlPatience)
	defer cancel()
	method, body := http.MethodGet, io.Reader(nil)
	if question != nil {
		data, err := json.Marshal(question)
		if err != nil {
			return err
		}
		method, body = http.MethodPost, bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://relay"+path, body)
	if err != nil {
		return err
	}
	response, err := p.socket.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s: %s", path, response.Status, data)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(data, answer)
}

// Follow has a peer do long work, and reads the lines that come to the result,
// which is read into result.
func (p *Peer) Follow(ctx context.Context, path string, question, result any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	data, err := json.Marshal(question)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://relay"+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	response, err := p.socket.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for lines := json.NewDecoder(response.Body); ; {
		var line struct {
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		switch err := lines.Decode(&line); {
		case err != nil:
			return err
		case line.Error != nil:
			return errors.New(line.Error.Message)
		case line.Result != nil:
			return json.Unmarshal(line.Result, result)
		}
	}
}

// Seen is one peer in the eyes of another.
type Seen struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
}

// Sees lists the members as a peer sees them now, by name: what
// `relay peer ls --json` prints.
func (p *Peer) Sees(ctx context.Context) (map[string]Seen, error) {
	var list []Seen
	if err := p.Ask(ctx, "/v0/peers?ask=no", nil, &list); err != nil {
		return nil, err
	}
	seen := map[string]Seen{}
	for _, s := range list {
		seen[s.Name] = s
	}
	return seen, nil
}
