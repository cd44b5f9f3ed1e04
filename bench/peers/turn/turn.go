package turn

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/wherry-fabric/wherry/bench/peers/echo"
	"github.com/wherry-fabric/wherry/bench/peers/figures"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/child"
	"github.com/wherry-fabric/wherry/internal/sockdir"
)

// graceTime is what a turn may take besides warming up and measuring.
const graceTime = 30 * time.Second

// Runner takes turns of the peers that are Go libraries.
type Runner struct {
	// Command starts this program in a role: the path and what comes before standard input.
	Command []string
	CPUs    CPUs
	Policy  fabric.Policy
	// Time is how long a turn measures. It warms up for a quarter of it before.
	Time time.Duration
}

// Warm is how long a turn of the given length warms up.
func Warm(length time.Duration) time.Duration { return length / 4 }

// spec tells a process its role.
type spec struct {
	Server    bool
	Peer      string
	Transport string
	Dir       string
	Policy    fabric.Policy
	Addr      string // of the server, for the client
	Work      figures.Work
	Warm      time.Duration
	Time      time.Duration
	Loop      bool // no side of a peer's, but a busy loop on the CPU of one
}

// wordMallocs asks the server how often it allocated so far.
const wordMallocs = "mallocs"

// window is when a turn's clients measure: all in the same time. One that gets no processor has few operations, not a later time.
type window struct{ Begin, End time.Time }

// clientLead is the time from the word to begin to the beginning, for each client: all have heard it by then.
const clientLead = 5 * time.Millisecond

// answer is what a process says.
type answer struct {
	Error   string          `json:",omitempty"`
	Addr    string          `json:",omitempty"`
	Procs   int             `json:",omitempty"` // GOMAXPROCS
	Mallocs uint64          `json:",omitempty"`
	Sample  *figures.Sample `json:",omitempty"`
}

// Take takes one turn.
func (r *Runner) Take(ctx context.Context, peer echo.Peer, transport string, work figures.Work) (s figures.Sample, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 2*r.Time+graceTime)
	defer cancel()
	dir, err := sockdir.Make("peers-")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(dir)
	sp := spec{Peer: peer.Name, Transport: transport, Dir: dir, Policy: r.Policy, Work: work, Warm: Warm(r.Time), Time: r.Time}
	sp.Server = true
	server, err := r.start(ctx, sp)
	if err != nil {
		return s, err
	}
	defer server.End()
	up, err := ask(server, "")
	if err != nil {
		return s, fmt.Errorf("server: %w", err)
	}
	sp.Server, sp.Addr = false, up.Addr
	var clients []*child.Process
	defer func() {
		for _, client := range clients {
			client.End()
		}
	}()
	var warm answer
	for range work.Clients() {
		client, err := r.start(ctx, sp)
		if err != nil {
			return s, err
		}
		clients = append(clients, client)
		if warm, err = ask(client, ""); err != nil {
			return s, fmt.Errorf("client: %w", err)
		}
	}
	if s, err = r.measured(clients, server); err != nil {
		return s, err
	}
	for _, client := range clients {
		client.End()
	}
	server.End()
	s.ClientProcs, s.ServerProcs = warm.Procs, up.Procs
	s.WallS = time.Since(began).Seconds()
	return s, nil
}

// measured lets the clients measure, all at once, between two looks at the server's allocations.
func (r *Runner) measured(clients []*child.Process, server *child.Process) (s figures.Sample, err error) {
	before, err := ask(server, wordMallocs)
	if err != nil {
		return s, fmt.Errorf("server: %w", err)
	}
	when := window{Begin: time.Now().Add(time.Duration(len(clients)) * clientLead)}
	when.End = when.Begin.Add(r.Time)
	for _, client := range clients {
		_ = client.Tell(when) // if it fails the process has ended, and ask says why
	}
	var all []figures.Sample
	for _, client := range clients {
		a, err := ask(client, "")
		if err != nil {
			return s, fmt.Errorf("client: %w", err)
		}
		if a.Sample == nil {
			return s, fmt.Errorf("client: it answered without a sample")
		}
		all = append(all, *a.Sample)
	}
	after, err := ask(server, wordMallocs)
	if err != nil {
		return s, fmt.Errorf("server: %w", err)
	}
	s = figures.Together(all)
	s.AllocsPerOp = max(s.AllocsPerOp, float64(after.Mallocs-before.Mallocs)/float64(max(s.Calls, 1)))
	return s, nil
}
