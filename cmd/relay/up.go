package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"relay/api"
	"relay/llama"
	"relay/p2p/membership"
	"relay/scheduler"
)

func newUp() *cobra.Command {
	var s settings
	var join string
	cmd := &cobra.Command{
		Use:   "up [--join INVITE]",
		Short: "Run this machine's peer in the foreground",
		Long: "Run this machine's peer in the foreground. The first start founds a mesh, or joins one\n" +
			"with --join. --name, --lend, --lend-mb, --lend-cores, --reserve-mb and --sandbox are\n" +
			"remembered for the next start.",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			warnUnknown(os.Environ(), cmd.ErrOrStderr())
			if err := s.fromEnvironment(); err != nil {
				return err
			}
			if err := s.validate(); err != nil {
				return err
			}
			return up(cmd.Context(), s, join, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&join, "join", "", "join the mesh of this `INVITE` first")
	f.StringVar(&s.listen, "listen", "", "the `ADDRESS` of /v1 (default "+defaultListen+")")
	f.StringArrayVar(&s.p2pListen, "p2p-listen", nil, "a `MULTIADDR` to listen on for other peers; repeatable (default TCP and QUIC on port 8421)")
	f.StringVar(&s.Name, "name", "", "what this machine is called in the mesh (default its host name)")
	f.StringVar(&s.Lend, "lend", "", "auto: lend what is free less a reserve; none: lend nothing")
	f.Int64Var(&s.LendMB, "lend-mb", 0, "lend at most that many MiB")
	f.IntVar(&s.LendCores, "lend-cores", 0, "cores that one engine may use (default half)")
	f.Int64Var(&s.ReserveMB, "reserve-mb", 0, "MiB to leave free for this machine's owner (default a tenth, at least 1024)")
	f.StringVar(&s.Sandbox, "sandbox", "", "auto, require or off: whether engines run in a sandbox")
	return cmd
}

// program is `relay up`: it outlives the parts, which are made anew when the
// machine changes its mesh.
type program struct {
	m       *machine
	out     io.Writer
	door    atomic.Pointer[http.Handler]
	control atomic.Pointer[http.Handler]
	doorURL string
	again   context.CancelCauseFunc    // Ends the parts that run now.
	models  func() []scheduler.Carried // Of the mesh that runs now.
	stop    context.CancelFunc
}

// errAgain ends the parts so that they are made anew.
var errAgain = errors.New("the machine has changed its mesh")

func up(ctx context.Context, s settings, join string, stdout, stderr io.Writer) error {
	var invite *membership.Invite
	if join != "" {
		parsed, err := membership.ParseInvite(join)
		if err != nil {
			return err
		}
		invite = &parsed
	}
	if status, err := llama.CheckSandbox(llama.SandboxMode(s.Sandbox)); err != nil {
		return err
	} else if s.Sandbox != string(llama.SandboxOff) && !status.Full() {
		fmt.Fprintf(stderr, "relay: warning: %s\n", status.Text)
	}
	log, closeLog, err := openLog(s, stderr)
	if err != nil {
		return err
	}
	defer closeLog()
	m, err := openMachine(s, log)
	if err != nil {
		return err
	}
	defer m.close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := &program{m: m, out: stdout, stop: stop}
	p.serve(&p.door, notYet)
	p.serve(&p.control, notYet)

	doorListener, err := net.Listen("tcp", s.listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return scheduler.Errorf(scheduler.PortInUse, "%s is in use by another program: choose another address with --listen", s.listen)
	}
	if err != nil {
		return fmt.Errorf("open /v1 on %s: %w", s.listen, err)
	}
	defer doorListener.Close()
	p.doorURL = "http://" + doorListener.Addr().String() + "/v1"
	first, err := p.enter(ctx, invite)
	if err != nil {
		return err
	}
	controlListener, err := listenControl(m)
	if err != nil {
		return err
	}
	defer controlListener.Close()

	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var servers errgroup.Group
	for at, l := range map[*atomic.Pointer[http.Handler]]net.Listener{&p.door: doorListener, &p.control: controlListener} {
		servers.Go(func() error {
			defer stop() // Without its doors a peer is none.
			return api.Serve(serving, l, dispatch{at}, api.ServeOptions{Deadlines: api.Deadlines{Drain: 2 * time.Second}, Log: log})
		})
	}
	err = p.live(ctx, first)
	stopServing()
	return errors.Join(err, servers.Wait())
}

// dispatch hands requests to the handler that is in place at the moment.
type dispatch struct{ to *atomic.Pointer[http.Handler] }

func (d dispatch) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*d.to.Load()).ServeHTTP(w, r) }

func (p *program) serve(at *atomic.Pointer[http.Handler], h http.Handler) { at.Store(&h) }

// what a start did, for the banner.
type entered struct {
	founded  bool
	admitter string
}

// enter makes sure that this machine is in a mesh: the one of the invite, the
// one it is in, or a new one of its own.
func (p *program) enter(ctx context.Context, invite *membership.Invite) (entered, error) {
	var kept string
	if err := p.m.load(keyPending, &kept); err != nil {
		return entered{}, err
	}
	if invite == nil && kept != "" {
		parsed, err := membership.ParseInvite(kept)
		if err != nil {
			return entered{}, errors.Join(err, p.m.forget(keyPending))
		}
		invite = &parsed
	}
	current, err := p.m.mesh()
	if err != nil {
		return entered{}, err
	}
	switch {
	case invite == nil && current == "":
		return entered{founded: true}, p.m.found("")
	case invite == nil:
		return entered{}, nil
	case invite.Mesh == current:
		return entered{}, p.m.forget(keyPending)
	}
	var carried []scheduler.Carried
	if current != "" {
		alone, models, err := p.m.alone(current)
		if err != nil {
			return entered{}, err
		}
		if !alone {
			return entered{}, errInMesh
		}
		carried = models
	}
	admission, err := p.m.admit(ctx, *invite, carried)
	if err != nil {
		return entered{}, errors.Join(err, p.forgetIfUseless(err))
	}
	return entered{admitter: admission.Admitter}, p.m.forget(keyPending)
}

// errInMesh refuses an invite on a machine that has others to leave first.
var errInMesh = scheduler.Errorf(scheduler.InMesh, "this machine is in a mesh with others: start it there without --join, or give it another state folder (RELAY_STATE_DIR) for the new mesh")

// forgetIfUseless drops a kept invite that will never work.
func (p *program) forgetIfUseless(err error) error {
	switch scheduler.ReasonOf(err) {
	case scheduler.InviteExpired, scheduler.InviteForeign, scheduler.InviteInvalid, scheduler.InviteRevoked, scheduler.InviteSpent:
		return p.m.forget(keyPending)
	}
	return nil
}

// live runs the parts until the program is to end.
func (p *program) live(ctx context.Context, first entered) error {
	for {
		id, err := p.m.mesh()
		if err != nil {
			return err
		}
		runCtx, again := context.WithCancelCause(ctx)
		p.again = again
		parts, err := assemble(runCtx, p.m, id, hooks{doorURL: p.doorURL, join: p.join, down: p.stop})
		if err != nil {
			return err
		}
		p.models = func() []scheduler.Carried { return scheduler.CarriedFrom(parts.node.Table()) }
		err = parts.run(runCtx, func() {
			p.serve(&p.door, parts.door.Handler())
			p.serve(&p.control, parts.control.Handler())
			p.banner(parts, first)
			p.carry(runCtx, parts.scheduler)
		})
		changed := errors.Is(context.Cause(runCtx), errAgain)
		again(nil)
		p.serve(&p.door, notYet)
		if err != nil || !changed || ctx.Err() != nil {
			return err
		}
		p.serve(&p.control, notYet)
		first = entered{}
	}
}

// carry registers the models of a mesh that was left, once somebody takes them.
func (p *program) carry(ctx context.Context, s *scheduler.Scheduler) {
	var list []scheduler.Carried
	if err := p.m.load(keyCarried, &list); err != nil || len(list) == 0 {
		return
	}
	go func() {
		if s.Carry(ctx, list) == nil {
			if err := p.m.forget(keyCarried); err != nil {
				p.m.log.Error("carried models not forgotten", "error", err)
			}
		}
	}()
}

// join is called by the control API of a machine that is alone in its mesh.
func (p *program) join(ctx context.Context, invite membership.Invite) (api.JoinAnswer, error) {
	admission, err := p.m.admit(ctx, invite, p.models())
	if err != nil {
		return api.JoinAnswer{}, err
	}
	p.again(errAgain)
	return api.JoinAnswer{Mesh: string(admission.Mesh), Admitter: admission.Admitter}, nil
}

func (p *program) banner(parts *peerParts, first entered) {
	w := p.out
	say := func(label, text string) { fmt.Fprintf(w, "  %-9s %s\n", label, text) }
	id := string(parts.control.MeshID)
	if first.founded {
		key, _ := p.m.meshKey(parts.control.MeshID)
		var name string
		_ = p.m.load(keyMeshName, &name)
		say("mesh", fmt.Sprintf("%s  (%s)", name, id))
		say("recovery", key.RecoveryCode()+"  (keep it; shown once)")
	} else {
		say("mesh", id)
	}
	say("peer", p.m.Name+"  "+parts.node.Self().String())
	say("/v1", p.doorURL)
	if secret, made := p.m.defaultKey(); made && first.founded {
		say("key", secret+"  (shown once)")
	}
	say("lends", lendsText(parts.scheduler))
	switch {
	case first.founded:
		for i, line := range nextLines(p.doorURL) {
			label := ""
			if i == 0 {
				label = "Next:"
			}
			say(label, line)
		}
	case first.admitter != "":
		say("joined", "by way of "+first.admitter+"; see the mesh with: relay status")
	}
}

func nextLines(doorURL string) []string {
	return []string{
		"relay model add demo      something to ask, with no network",
		"relay peer invite         bring in another machine",
		"curl " + doorURL + `/chat/completions -H "Authorization: Bearer $KEY" -d '{"model":"demo","messages":[{"role":"user","content":"What is relay?"}]}'`,
	}
}

func lendsText(s *scheduler.Scheduler) string {
	for _, p := range s.Peers() {
		if p.Self {
			return lendSummary(p)
		}
	}
	return "nothing yet"
}

// listenControl opens the control socket; the lock on the state folder is held,
// so a socket file that is there already is a dead one.
func listenControl(m *machine) (net.Listener, error) {
	path, err := controlSocket(m.tree)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old control socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
