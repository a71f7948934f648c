package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"relay/p2p"
	"relay/scheduler"
)

// routeActs adds what is about where models run.
func (c *Control) routeActs(mux *http.ServeMux) {
	mux.HandleFunc("GET /v0/model/plan", atOnce(c, func(r *http.Request) (scheduler.PlanState, error) {
		return c.Scheduler.Plan(r.URL.Query().Get("name"))
	}))
	for _, act := range []scheduler.Act{scheduler.ActUnload, scheduler.ActRetry} {
		mux.HandleFunc("POST /v0/model/"+string(act), atOnce(c, func(r *http.Request) (scheduler.Acted, error) {
			var q NameRequest
			if err := decodeBody(r.Body, &q); err != nil {
				return scheduler.Acted{}, err
			}
			return c.Scheduler.Act(r.Context(), q.Name, act)
		}))
	}
	for _, act := range []scheduler.Act{scheduler.ActLoad, scheduler.ActRestart} {
		mux.HandleFunc("POST /v0/model/"+string(act), inLines(c, func(ctx context.Context, body io.Reader, progress func(ProgressLine)) (scheduler.Acted, error) {
			return c.actAndWait(ctx, body, act, progress)
		}))
	}
}

// WaitRequest names a model that is loaded or restarted.
type WaitRequest struct {
	Name string `json:"name"`
	// NoWait has it answered as soon as the leader has taken it up; else once the
	// model serves, or every replica was restarted.
	NoWait bool `json:"no_wait,omitempty"`
	// Force has it loaded on several peers, also where one holds it or that is slow.
	Force bool `json:"force,omitempty"`
}

func (c *Control) actAndWait(ctx context.Context, body io.Reader, act scheduler.Act, progress func(ProgressLine)) (scheduler.Acted, error) {
	var q WaitRequest
	if err := decodeBody(body, &q); err != nil {
		return scheduler.Acted{}, err
	}
	before, err := c.Scheduler.Model(q.Name)
	if err != nil {
		return scheduler.Acted{}, err
	}
	if act == scheduler.ActLoad && q.Force {
		act = scheduler.ActSpread
	}
	var until awaited = served{spread: act == scheduler.ActSpread}
	anew := newRestarted(c, before)
	if act == scheduler.ActRestart {
		until = anew
	}
	acted, err := c.Scheduler.Act(ctx, before.UID, act)
	if leaderChanges(err) && !q.NoWait {
		progress(underWay{phase: "wait", why: err.Error(), total: -1}.line())
		acted, err = c.actOnceLed(ctx, before.UID, act)
	}
	if err != nil || q.NoWait || act == scheduler.ActRestart && !serves(before) {
		return acted, err
	}
	acted.Model, err = c.await(ctx, before.UID, acted.Text, until, progress)
	if anew.gap {
		acted.Text += "; there was a gap, in which requests waited"
	}
	return acted, err
}

// actOnceLed asks the leader of a model for something as soon as it has one.
func (c *Control) actOnceLed(ctx context.Context, uid string, act scheduler.Act) (scheduler.Acted, error) {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for began := time.Now(); ; {
		select {
		case <-again.C:
		case <-ctx.Done():
			return scheduler.Acted{}, ctx.Err()
		}
		if acted, err := c.Scheduler.Act(ctx, uid, act); !leaderChanges(err) || time.Since(began) >= leaderless {
			return acted, err
		}
	}
}

// leaderless is how long somebody who waits for a model waits for it to have a leader.
const leaderless = 20 * time.Second

// leaderChanges says whether what was asked of a leader failed because it leads no
// more, or nobody does yet.
func leaderChanges(err error) bool {
	why := scheduler.ReasonOf(err)
	return err != nil && (why == scheduler.ModelLoading || why == scheduler.Superseded)
}

// obey does what another peer asks of this one as a leader. That somebody waits for
// a model any member may say, all else is for admins' machines.
func (c *Control) obey(r *http.Request) (scheduler.ActAnswer, error) {
	var q scheduler.ActRequest
	if err := decodePeerBody(r.Body, &q); err != nil {
		return scheduler.ActAnswer{}, err
	}
	from, _ := p2p.RemotePeer(r.Context())
	switch q.Act {
	case scheduler.ActWant:
	case scheduler.ActLoad, scheduler.ActSpread, scheduler.ActUnload, scheduler.ActRestart, scheduler.ActRetry:
		if !c.isAdmin(from) {
			return scheduler.ActAnswer{}, scheduler.Errorf(scheduler.NotAllowed, "only an admin's machine may have a model loaded, unloaded, restarted or tried again")
		}
	default:
		return scheduler.ActAnswer{}, scheduler.Errorf(scheduler.InvalidRequest, "%.40q is nothing that the leader of a model can be asked for", q.Act)
	}
	text, err := c.Scheduler.Obey(from, q.UID, q.Act)
	return scheduler.ActAnswer{Text: text}, err
}
