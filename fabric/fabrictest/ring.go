package fabrictest

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
)

const (
	ringElements = 4
	ringCores    = 2
	ringHops     = 20_000
	// ringTime bounds a ring: 200 hops a second, where one of spinning processes that
	// wait for each other's time slices makes some 400, and a sound one tens of thousands.
	ringTime = 100 * time.Second
	// ringHopCPU bounds the processor time that all elements together take per hop where
	// their policy lets them sleep. Polling out one's time slice takes some 5 ms.
	ringHopCPU = time.Millisecond
)

// processRing: more elements than cores, all of which wait, pass a token round.
// It makes progress, and does not burn the cores meanwhile.
func processRing(r *rig) {
	for _, p := range []fabric.Policy{fabric.Balanced, fabric.Efficient, fabric.Latency} {
		cpu := r.ring(p)
		r.Logf("%v: %d hops took %v of processor time", p, ringHops, cpu)
		if p != fabric.Latency && cpu > ringHopCPU*ringHops { // to burn a core is what Latency is for
			r.Errorf("%v: %d hops took %v of processor time, at most %v are right", p, ringHops, cpu, ringHopCPU*ringHops)
		}
	}
}

// ring runs one, and returns the processor time that it took.
func (r *rig) ring(p fabric.Policy) (cpu time.Duration) {
	r.Helper()
	var members []suite.Child
	var addrs []string
	r.Must(onCores(ringCores, func() {
		for i := range ringElements {
			members = append(members, r.Spawn("ring", strconv.Itoa(i), p.String()))
		}
	}))
	for _, m := range members {
		addrs = append(addrs, suite.Heard[string](r.Rig, m))
	}
	for i, m := range members {
		r.Must(m.Tell(addrs[(i+1)%ringElements]))
	}
	for _, m := range members {
		suite.Heard[string](r.Rig, m) // it is connected
	}
	for i := range members { // the first one last: it sends the token
		r.Must(members[ringElements-1-i].Tell("go"))
	}
	for i, m := range members {
		f := suite.Heard[lap](r.Rig, m)
		if f.Hops != ringHops/ringElements+1 {
			r.Errorf("%v: element %d had the token %d times, want %d", p, i, f.Hops, ringHops/ringElements+1)
		}
		cpu += f.CPU
	}
	for _, m := range members { // not before: who is not through still asks the next one
		m.Kill()
	}
	return cpu
}

// onCores runs fn on a thread that is bound to n of its cores, as then are the
// processes that fn starts.
func onCores(n int, fn func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, some unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := 0; some.Count() < min(n, all.Count()); cpu++ {
		if all.IsSet(cpu) {
			some.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &some); err != nil {
		return err
	}
	fn()
	return unix.SchedSetaffinity(0, &all)
}

// lap is what one element did in a ring.
type lap struct {
	Hops int64
	CPU  time.Duration
}

// childRing is one element of a ring.
func childRing(f Factory, p *suite.Parent, args []string) error {
	policy, err := fabric.ParsePolicy(args[1])
	if err != nil {
		return err
	}
	n, err := newNode(f, func(c *fabric.Config) { c.Name, c.Policy = "ring "+args[0], policy })
	if err != nil {
		return err
	}
	defer n.Close()
	var next atomic.Pointer[fabric.Endpoint]
	var over atomic.Bool
	var hops atomic.Int64
	if err := n.Handle(idData, func(m fabric.Message) {
		hop := binary.LittleEndian.Uint64(m.Body)
		if hops.Add(1); hop < ringHops+ringElements-1 {
			next.Load().Post(idData, nil, binary.LittleEndian.AppendUint64(nil, hop+1)) // if that fails, the ring stands still, and says so
		}
		over.Store(hop >= ringHops)
	}); err != nil {
		return err
	}
	if err := p.Encode(n.addr); err != nil {
		return err
	}
	var addr, word string
	if err := p.Decode(&addr); err != nil {
		return fmt.Errorf("nobody says who is next: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), ringTime)
	defer cancel()
	ep, err := n.Dial(ctx, addr)
	if err != nil {
		return err
	}
	next.Store(ep)
	if err := p.Encode("connected"); err != nil {
		return err
	}
	if err := p.Decode(&word); err != nil {
		return fmt.Errorf("nobody says when to begin: %w", err)
	}
	before := cpuTime()
	if args[0] == "0" {
		if err := ep.Send(ctx, idData, nil, binary.LittleEndian.AppendUint64(nil, 0)); err != nil {
			return err
		}
	}
	if err := n.WaitFor(ctx, over.Load); err != nil {
		return fmt.Errorf("the token came %d times: %w", hops.Load(), err)
	}
	if err := ep.Flush(ctx); err != nil {
		return err
	}
	if err := p.Encode(lap{hops.Load(), cpuTime() - before}); err != nil {
		return err
	}
	_ = p.Decode(&word) // until all are through
	return nil
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
