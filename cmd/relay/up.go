package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"relay/api"
	"relay/llama"
	"relay/p2p"
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
			"with --join. --name, --lend, --lend-mb, --lend-cores, --reserve-mb, --auto-pause, --sandbox and\n" +
			"--deadline are remembered for the next start; what the environment says is not. --lend auto undoes a\n" +
			"remembered --lend none or --lend-mb; of the others what is said anew counts.",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			warnUnused(os.Environ(), cmd.ErrOrStderr())
			if err := checkLendFlags(cmd); err != nil {
				return err
			}
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
	f.StringVar(&s.flags.Name, "name", "", "what this machine is called in the mesh (default its host name)")
	f.StringVar(&s.flags.Lend, "lend", "", "auto: lend what is free less a reserve, without an earlier --lend-mb; none: lend nothing")
	f.Int64Var(&s.flags.LendMB, "lend-mb", 0, "lend at most that many MiB of host memory, and of each GPU, of what is free less the reserve")
	f.IntVar(&s.flags.LendCores, "lend-cores", 0, "cores that models may keep busy, all together (default half)")
	f.Int64Var(&s.flags.ReserveMB, "reserve-mb", 0, "MiB to leave free for this machine's owner (default a tenth, at least 1024)")
	f.VarPF(&s.flags.AutoPause, "auto-pause", "", "unload what runs on a GPU while other programs use it, and come back").NoOptDefVal = "true"
	f.StringVar(&s.flags.Sandbox, "sandbox", "", "auto, require or off: whether engines run in a sandbox")
	f.Var(&s.flags.Deadlines, "deadline", "how long /v1 waits for what, repeatable: "+deadlineNames+"\n(default dial=5s, headers=15s, first-token=10m, between-tokens=5m, total=1h)")
	return cmd
}

// program is `relay up`: it outlives the parts, which are made anew when the
// machine changes its mesh.
type program struct {
	m           *machine
	out, warn   io.Writer
	door        *swap
	control     *swap
	controlIdle http.Handler // While no parts run.
	doorURL     string
	stop        context.CancelFunc

	mu      sync.Mutex
	again   context.CancelCauseFunc    // Ends the parts that run now.
	models  func() []scheduler.Carried // Of the mesh that runs now.
	joining bool                       // These parts are about to be left for another mesh.
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
	if err := m.finishLeave(); err != nil {
		return err
	}
	if revoked, err := m.finishWipe(ctx, stdout, true); err != nil || revoked {
		return cmp.Or(err, p2p.ErrRevoked)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := &program{m: m, out: stdout, warn: stderr, stop: stop, door: newSwap(http.HandlerFunc(notYet))}
	starting := http.NewServeMux()
	starting.HandleFunc("/", notYet)
	starting.HandleFunc("POST /v0/down", func(w http.ResponseWriter, _ *http.Request) {
		stop()
		fmt.Fprintln(w, "{}")
	})
	p.controlIdle, p.control = starting, newSwap(starting)

	// Whatever this machine may lack is found out before it enters a mesh.
	doorListener, err := listenDoor(s.listen)
	if err != nil {
		return err
	}
	defer doorListener.Close()
	p.doorURL = "http://" + doorListener.Addr().String() + "/v1"
	controlListener, err := listenControl(m)
	if err != nil {
		return err
	}
	defer controlListener.Close()
	if err := m.tryP2P(); err != nil {
		return err
	}

	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var servers errgroup.Group
	for h, l := range map[*swap]net.Listener{p.door: doorListener, p.control: controlListener} {
		servers.Go(func() error {
			defer stop() // Without its doors a peer is none.
			return api.Serve(serving, l, h, api.ServeOptions{Deadlines: api.Deadlines{Drain: 2 * time.Second}, Log: log})
		})
	}
	first, err := p.enter(ctx, invite)
	switch {
	case err == nil:
		err = p.live(ctx, first)
	case ctx.Err() != nil:
		err = nil // It was told to end before it had begun.
	}
	stopServing()
	err = errors.Join(err, servers.Wait())
	_, erasing := m.finishWipe(context.WithoutCancel(ctx), stdout, false) // By an order, or as it left.
	return errors.Join(err, erasing)
}

// what a start did, for the banner.
type entered struct{ admitter string }

// enter makes sure that this machine is in a mesh: the one of the invite, the
// one it is in, or a new one of its own.
func (p *program) enter(ctx context.Context, invite *membership.Invite) (entered, error) {
	current, err := p.m.mesh()
	if err != nil {
		return entered{}, err
	}
	if invite != nil {
		admitter, err := p.enterBy(ctx, *invite, current)
		return entered{admitter}, err
	}
	var kept string
	if err := p.m.load(keyPending, &kept); err != nil {
		return entered{}, err
	}
	if kept != "" {
		admitter, err := p.enterByKept(ctx, kept, current)
		if err == nil || current == "" || ctx.Err() != nil {
			return entered{admitter}, err
		}
		fmt.Fprintf(p.warn, "relay: warning: this machine stays in its mesh for now: %s\n", sentence(err))
	}
	if current == "" {
		return entered{}, p.m.found("")
	}
	return entered{}, nil
}

// enterBy joins the mesh of an invite, unless this machine is in it.
func (p *program) enterBy(ctx context.Context, invite membership.Invite, current membership.MeshID) (admitter string, err error) {
	if invite.Mesh == current {
		return "", p.m.forget(keyPending)
	}
	var carried []scheduler.Carried
	if current != "" {
		alone, models, err := p.m.alone(current)
		if err != nil {
			return "", err
		}
		if !alone {
			return "", errInMesh
		}
		carried = models
	}
	admission, err := p.m.admit(ctx, invite, carried)
	return admission.Admitter, err
}

// enterByKept does it by the invite that `relay peer join` kept, which is
// dropped where it will never do.
func (p *program) enterByKept(ctx context.Context, kept string, current membership.MeshID) (admitter string, err error) {
	invite, err := membership.ParseInvite(kept)
	if err == nil {
		admitter, err = p.enterBy(ctx, invite, current)
	}
	switch scheduler.ReasonOf(err) {
	case scheduler.InviteExpired, scheduler.InviteForeign, scheduler.InviteInvalid, scheduler.InviteRevoked, scheduler.InviteSpent, scheduler.InMesh:
		return "", errors.Join(fmt.Errorf("the invite that was kept is dropped: %w", err), p.m.forget(keyPending))
	}
	if err != nil {
		return "", fmt.Errorf("the invite that was kept could not be used, and is tried again at the next start (`relay peer join --forget` drops it): %w", err)
	}
	return admitter, nil
}

// errInMesh refuses an invite on a machine that has others to leave first.
var errInMesh = scheduler.Errorf(scheduler.InMesh, "this machine is in a mesh with others: start it there without --join and leave it first (relay peer leave), then join")

// live runs the parts until the program is to end.
func (p *program) live(ctx context.Context, first entered) error {
	for {
		id, err := p.m.mesh()
		if err != nil {
			return err
		}
		changed, err := p.runIn(ctx, id, first)
		if err != nil || !changed || ctx.Err() != nil {
			return err
		}
		first = entered{}
	}
}

// runIn runs the parts in one mesh, until the program is to end or the machine
// has changed its mesh.
func (p *program) runIn(ctx context.Context, id membership.MeshID, first entered) (changed bool, err error) {
	ctx, again := context.WithCancelCause(ctx)
	defer again(nil)
	parts, err := assemble(ctx, p.m, id, hooks{doorURL: p.doorURL, join: p.join, down: p.stop})
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	p.again, p.joining = again, false
	p.models = func() []scheduler.Carried { return scheduler.CarriedFrom(parts.node.Table()) }
	p.mu.Unlock()
	var carrying sync.WaitGroup
	err = parts.run(ctx, func() {
		p.banner(parts, first) // First, so that whoever waits for the door can read it.
		p.control.serve(parts.control.Handler())
		p.door.serve(parts.door.Handler())
		carrying.Go(func() { p.carry(ctx, parts.scheduler) })
	}, func() <-chan struct{} { return p.door.closeWith(http.HandlerFunc(leaving)) })
	if errors.Is(err, p2p.ErrRevoked) {
		err = errors.Join(err, p.m.noteWipe(parts.node))
	}
	changed = errors.Is(context.Cause(ctx), errAgain)
	again(nil)
	carrying.Wait()
	p.door.serve(http.HandlerFunc(notYet))
	p.control.serve(p.controlIdle)
	return changed, err
}

// carry registers the models of a mesh that was left, once somebody takes them.
func (p *program) carry(ctx context.Context, s *scheduler.Scheduler) {
	list, err := p.m.coming()
	if err != nil || len(list) == 0 {
		return
	}
	if s.Carry(ctx, list) == nil {
		if err := p.m.forget(keyCarried); err != nil {
			p.m.log.Error("carried models not forgotten", "error", err)
		}
	}
}

// join is called by the control API of a machine that is alone in its mesh. The
// parts that run are left once it is admitted, so there is one join at a time.
func (p *program) join(ctx context.Context, invite membership.Invite) (api.JoinAnswer, error) {
	p.mu.Lock()
	busy, again, models := p.joining, p.again, p.models
	p.joining = true
	p.mu.Unlock()
	if busy {
		return api.JoinAnswer{}, scheduler.Errorf(scheduler.Busy, "this machine is joining a mesh already")
	}
	admission, err := p.m.admit(ctx, invite, models())
	if err != nil {
		p.mu.Lock()
		p.joining = false
		p.mu.Unlock()
		return api.JoinAnswer{}, err
	}
	again(errAgain)
	return api.JoinAnswer{Mesh: string(admission.Mesh), Admitter: admission.Admitter}, nil
}

// banner says what the peer is and where, and once, however often it was begun
// before, the secrets of a mesh that was founded here.
func (p *program) banner(parts *peerParts, first entered) {
	var w bytes.Buffer
	say := func(label, text string) { fmt.Fprintf(&w, "  %-9s %s\n", label, text) }
	id := parts.control.MeshID
	secrets, err := p.m.unshown(id)
	if err != nil {
		p.m.log.Error("the secrets of the mesh cannot be shown", "error", err)
	}
	if secrets.recovery != "" {
		say("mesh", fmt.Sprintf("%s  (%s)", secrets.mesh, id))
		say("recovery", secrets.recovery+"  (keep it; shown once)")
	} else {
		say("mesh", string(id))
	}
	say("peer", p.m.Name+"  "+parts.node.Self().String())
	say("/v1", p.doorURL)
	if secrets.key != "" {
		say("key", secrets.key+"  (shown once)")
	}
	say("lends", lendsText(parts.scheduler))
	switch {
	case secrets.recovery != "":
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
	if _, err := w.WriteTo(p.out); err != nil || secrets.recovery == "" {
		return
	}
	if err := p.m.forget(keyUnshown); err != nil {
		p.m.log.Error("what was shown is not noted", "error", err)
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
