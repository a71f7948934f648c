package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"relay/p2p"
	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/scheduler"
	"relay/store/audit"
)

// maxAuditAnswer bounds a page of another peer's rows, in bytes.
const maxAuditAnswer = 4 << 20

// ControlAudit is what the control API needs of the audit.
type ControlAudit interface {
	Tail(n int) (audit.Page, error)
	Since(mark uint64, n int) (audit.Page, error)
	Find(ctx context.Context, id string) (audit.Page, error)
}

// AuditRequest asks for requests that doors of the mesh have answered.
type AuditRequest struct {
	// Last is how many to show, 1 to audit.MostRows: of all doors together the last
	// ones that ended, each door having its part of them; or, after a mark, of each door
	// the next ones.
	Last int `json:"last"`
	// After are the marks of an earlier answer, by the id of the peer. Of a peer without
	// one nothing is shown yet: it gets its mark.
	After map[string]uint64 `json:"after,omitempty"`
}

// AuditAnswer is what the doors of the mesh have answered, by how long ago the requests
// came. Each is dated by its door's clock, which may be another one.
type AuditAnswer struct {
	Rows []AuditRow `json:"rows"`
	// Next are the marks with which to ask for what comes after these rows.
	Next map[string]uint64 `json:"next"`
	// More: a door had as many rows after its mark as were asked for, and may have more.
	More bool `json:"more,omitempty"`
	// Unanswered are the peers whose rows are not here, and why.
	Unanswered []Unanswered `json:"unanswered"`
}

// AuditRow is a row with the names that go with its ids; empty where there is none any
// more.
type AuditRow struct {
	audit.Row
	age          time.Duration
	EntranceName string `json:"entrance_name"`
	KeyName      string `json:"key_name,omitempty"`
	PeerName     string `json:"peer_name,omitempty"`
}

// Unanswered is a peer that did not say what it was asked, and why.
type Unanswered struct {
	PeerName
	Why string `json:"why"`
}

// routeAudit adds what is about requests that were answered.
func (c *Control) routeAudit(mux *http.ServeMux) {
	mux.HandleFunc("POST /v0/audit", atOnce(c, c.auditRows))
	mux.HandleFunc("GET /v0/request", atOnce(c, c.findRequest))
}

// routePeerAudit adds what other peers may ask of this one's.
func (c *Control) routePeerAudit(mux *http.ServeMux) {
	mux.HandleFunc("GET /audit", atOnce(c, c.ownRows))
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		text, err := textOf(c.Metrics)
		if err != nil {
			c.Log.Error("metrics cannot be shown", "error", err)
			http.Error(w, "the metrics cannot be shown", http.StatusInternalServerError)
			return
		}
		writeMetrics(w, text)
	})
}

// ownRows answers another peer. What the doors of others have answered is not for
// machines that are trusted with a part of a model, or with nothing.
func (c *Control) ownRows(r *http.Request) (page audit.Page, err error) {
	defer func() { page.Now = time.Now() }()
	from, _ := p2p.RemotePeer(r.Context())
	if m, ok := c.Mesh.Roster().Member(from); !ok || !seesRequests(m) {
		return audit.Page{}, scheduler.Errorf(scheduler.NotAllowed, "its requests are shown to admins' machines and to those with trust %s", membership.TrustReplicas)
	}
	q := r.URL.Query()
	if id := q.Get("id"); id != "" {
		leave, err := c.finding.enter(r.Context())
		if err != nil {
			return audit.Page{}, err
		}
		defer leave()
		return c.Audit.Find(r.Context(), id)
	}
	last, err := strconv.Atoi(q.Get("last"))
	if err != nil {
		return audit.Page{}, scheduler.Errorf(scheduler.InvalidRequest, "%.20q is no number of rows", q.Get("last"))
	}
	if !q.Has("after") {
		return c.Audit.Tail(last)
	}
	after, err := strconv.ParseUint(q.Get("after"), 10, 64)
	if err != nil {
		return audit.Page{}, scheduler.Errorf(scheduler.InvalidRequest, "%.20q is no mark of a row", q.Get("after"))
	}
	return c.Audit.Since(after, last)
}

// mostFinds is how many requests are looked for at a time for other peers: each looks
// through all rows.
const mostFinds = 2

// finding lets mostFinds in at a time; the others wait.
type finding struct {
	once  sync.Once
	turns chan struct{}
}

func (f *finding) enter(ctx context.Context) (leave func(), err error) {
	f.once.Do(func() { f.turns = make(chan struct{}, mostFinds) })
	select {
	case f.turns <- struct{}{}:
		return func() { <-f.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// seesRequests says whether a member is shown what the doors of others have answered.
func seesRequests(m membership.Member) bool {
	return m.Role == membership.RoleAdmin || m.Trust == membership.TrustReplicas
}

func (c *Control) auditRows(r *http.Request) (AuditAnswer, error) {
	var q AuditRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return AuditAnswer{}, err
	}
	if q.Last < 1 || q.Last > audit.MostRows {
		return AuditAnswer{}, scheduler.Errorf(scheduler.InvalidRequest, "%d rows: 1 to %d are possible", q.Last, audit.MostRows)
	}
	answer, err := c.askRows(r.Context(), func(p scheduler.PeerState) (string, func() (audit.Page, error)) {
		after, ok := q.After[p.ID]
		if !ok {
			last := q.Last
			if q.After != nil {
				last = 0
			}
			return fmt.Sprintf("last=%d", last), func() (audit.Page, error) { return c.Audit.Tail(last) }
		}
		return fmt.Sprintf("last=%d&after=%d", q.Last, after), func() (audit.Page, error) { return c.Audit.Since(after, q.Last) }
	})
	for id, mark := range q.After { // Of those that did not answer now.
		if _, ok := answer.Next[id]; !ok && err == nil {
			answer.Next[id] = mark
		}
	}
	if q.After == nil {
		answer.Rows = lastOf(answer.Rows, q.Last)
		return answer, err
	}
	of := map[string]int{} // How many each door has.
	for _, r := range answer.Rows {
		of[r.Entrance]++
		answer.More = answer.More || of[r.Entrance] >= q.Last
	}
	return answer, err
}

func (c *Control) findRequest(r *http.Request) (AuditAnswer, error) {
	id := r.URL.Query().Get("id")
	if !saneID(id) {
		return AuditAnswer{}, scheduler.Errorf(scheduler.InvalidRequest, "%.140q is no id of a request: they have up to 128 letters, digits and any of -_.:", id)
	}
	return c.askRows(r.Context(), func(scheduler.PeerState) (string, func() (audit.Page, error)) {
		return "id=" + url.QueryEscape(id), func() (audit.Page, error) { return c.Audit.Find(r.Context(), id) }
	})
}

// askRows asks every peer at once, this one by the function that question gives and
// the others by its query, and puts together what they answer.
func (c *Control) askRows(ctx context.Context, question func(scheduler.PeerState) (query string, own func() (audit.Page, error))) (AuditAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	peers := c.Scheduler.Peers()
	pages, errs := make([]audit.Page, len(peers)), make([]error, len(peers))
	var asking sync.WaitGroup
	for i, p := range peers {
		query, own := question(p)
		asking.Go(func() {
			switch {
			case p.Self:
				pages[i], errs[i] = own()
			case p.State == string(liveness.Gone):
				errs[i] = scheduler.Errorf(scheduler.PeerGone, "it is gone")
			default:
				pages[i], errs[i] = c.peers().rows(ctx, p, query)
			}
		})
	}
	asking.Wait()

	answer := AuditAnswer{Rows: []AuditRow{}, Next: map[string]uint64{}, Unanswered: []Unanswered{}}
	names := map[string]string{}
	for _, p := range peers {
		names[p.ID] = p.Name
	}
	for i, p := range peers {
		if errs[i] != nil {
			if p.Self {
				return answer, errs[i]
			}
			answer.Unanswered = append(answer.Unanswered, Unanswered{PeerName{p.ID, p.Name}, errs[i].Error()})
			continue
		}
		answer.Next[p.ID] = pages[i].Next
		now := pages[i].Now
		if p.Self || now.IsZero() { // Older releases do not say it.
			now = time.Now()
		}
		for _, row := range pages[i].Rows {
			row.Entrance = p.ID // None speaks for another.
			shown := AuditRow{Row: row, age: max(0, now.Sub(row.Time)), EntranceName: p.Name, PeerName: names[row.Peer]}
			if row.Key != "" && c.KeyName != nil {
				shown.KeyName = c.KeyName(row.Key)
			}
			answer.Rows = append(answer.Rows, shown)
		}
	}
	slices.SortStableFunc(answer.Rows, olderFirst)
	return answer, nil
}

func olderFirst(a, b AuditRow) int { return cmp.Compare(b.age, a.age) }

// lastOf leaves the n last of rows that are sorted, of which each door has the same part
// as long as it has that many: none can fill them all, whatever it says.
func lastOf(rows []AuditRow, n int) []AuditRow {
	of := map[string]int{} // How many each door has.
	for _, r := range rows {
		of[r.Entrance]++
	}
	part := max(1, n/max(1, len(of)))
	turns := make([]int, len(rows)) // In which turn a row gets in.
	order := make([]int, len(rows))
	for i, r := range rows {
		of[r.Entrance]--
		turns[i], order[i] = of[r.Entrance]/part, i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(turns[a], turns[b]), cmp.Compare(rows[a].age, rows[b].age))
	})
	order = order[:min(n, len(order))]
	slices.Sort(order)
	last := make([]AuditRow, 0, len(order))
	for _, i := range order {
		last = append(last, rows[i])
	}
	return last
}

// rows gets a page of another peer's rows, each of which is bounded again.
func (p peerClient) rows(ctx context.Context, to scheduler.PeerState, query string) (audit.Page, error) {
	var page audit.Page
	response, err := p.do(ctx, to.ID, http.MethodGet, "/audit?"+query, nil)
	if err != nil {
		return page, scheduler.Errorf(scheduler.PeerGone, "it does not answer")
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAuditAnswer))
	switch {
	case err != nil:
		return page, scheduler.Errorf(scheduler.PeerGone, "it went away before it had answered")
	case response.StatusCode == http.StatusNotFound:
		return page, scheduler.Errorf(scheduler.NotYet, "it is of an older release that keeps no rows")
	case response.StatusCode != http.StatusOK:
		return page, peerRefusal(to, response, data)
	}
	if err := json.Unmarshal(data, &page); err != nil {
		return page, scheduler.Errorf(scheduler.RecordInvalid, "what it answers cannot be read")
	}
	page.Rows = page.Rows[:min(len(page.Rows), audit.MostRows)]
	for i, row := range page.Rows {
		page.Rows[i] = row.Bounded()
	}
	return page, nil
}
