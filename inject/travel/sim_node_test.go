package travel_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// trial is one seeded run of the protocol.
type trial struct {
	w       *sim.World
	fail    func(format string, args ...any)
	plans   []*plan
	objects map[travel.ID][]byte
	evict   float64 // of an unpinned object being gone when looked at
	corrupt float64 // of an arriving object failing its check
	limits  travel.Limits
	members int  // nodes below this one are members
	lazy    bool // Next is not asked, so that nothing makes a core catch up
	severed int
	patient bool // starts wait for room
	room    int  // places for runs at each node; 0: as many as come
	narrow  int  // how many nodes have so few, the first ones; 0: all
	compile compiling
	ordered bool // messages of a link arrive in their order
	derived int  // branches that were sent on as another function
	made    int  // functions that only one node had at first
	atOnce  int  // the most workers of an invocation that ran at a node
}

// element is one life of a node: a core with a scripted runtime.
type element struct {
	t        *trial
	n        *sim.Node
	core     *travel.Core
	peers    map[int][]travel.Peer // by node index; looked up only
	due      int64                 // lazy: when Tick is to be called next
	woken    bool                  // lazy: Tick has just said so
	back     map[travel.Peer]*sim.Node
	links    map[travel.Peer]int
	byLink   map[int]travel.Peer
	has      map[travel.ID]int // objects here, how often pinned
	stop     map[*travel.Run]bool
	busy     map[worker]int               // stateful: running now
	state    map[worker]int               // held now
	taking   bool                         // an INJECT is being received
	kept     int                          // messages whose credit is withheld
	canceled map[travel.InvocationID]bool // CANCEL has come from its origin
	keep     bool                         // evict nothing just now
	used     int                          // places
	taken    map[*travel.Run]bool         // places of runs that have waited for them
	later    []func()                     // what effects must not do themselves
	bind     map[[2]travel.ID]*travel.Binding
	programs programs
}

func (t *trial) boot(n *sim.Node) sim.Handler {
	e := &element{t: t, n: n, peers: map[int][]travel.Peer{}, back: map[travel.Peer]*sim.Node{}, has: map[travel.ID]int{},
		canceled: map[travel.InvocationID]bool{}, links: map[travel.Peer]int{}, byLink: map[int]travel.Peer{},
		stop: map[*travel.Run]bool{}, busy: map[worker]int{}, state: map[worker]int{},
		bind: map[[2]travel.ID]*travel.Binding{}, taken: map[*travel.Run]bool{}}
	core, err := travel.New(travel.Config{Self: n.Incarnation, Name: n.Name, HashSeed: n.Incarnation, Limits: t.limits, Store: e, Effects: e})
	if err != nil {
		panic(err)
	}
	e.core = core
	return e
}

func (e *element) now() travel.Instant { return travel.Instant(e.t.w.Now()) }

// The world's side.

func (e *element) Up(now int64, peer int, other *sim.Node) {
	p := e.freePeer()
	e.peers[other.Index], e.back[p] = append(e.peers[other.Index], p), other
	e.links[p], e.byLink[peer] = peer, p
	err := e.core.PeerUp(e.now(), p, travel.PeerInfo{Incarnation: other.Incarnation, Name: other.Name,
		Member: other.Index < e.t.members, Injector: true, Principal: principalOf(other)})
	if err != nil {
		e.t.fail("%s: PeerUp: %v", e.n.Name, err)
	}
	e.after()
}

// principalOf is one of two.
func principalOf(n *sim.Node) string { return "p" + strconv.Itoa(n.Index%2) }

// freePeer reuses numbers, as a runtime would.
func (e *element) freePeer() travel.Peer {
	for p := travel.Peer(1); ; p++ {
		if e.back[p] == nil {
			return p
		}
	}
}

func (e *element) Lost(now int64, link int, why error) {
	p := e.byLink[link]
	other := e.back[p]
	e.peers[other.Index] = slices.DeleteFunc(e.peers[other.Index], func(q travel.Peer) bool { return q == p })
	delete(e.back, p)
	delete(e.links, p)
	delete(e.byLink, link)
	e.core.PeerLost(travel.Instant(now), p, why)
	e.after()
}

func (e *element) Recv(now int64, link int, kind uint16, body []byte) {
	e.taking = travel.Kind(kind) == travel.KindInject
	r, err := e.core.Recv(travel.Instant(now), e.byLink[link], travel.Kind(kind), body)
	e.taking = false
	if travel.Kind(kind) == travel.KindCancel {
		e.canceled[travel.InvocationID{Origin: e.back[e.byLink[link]].Incarnation, Seq: uint64(body[2]) | uint64(body[3])<<8}] = true
	}
	if err != nil {
		e.t.fail("%s: Recv %v: %v", e.n.Name, travel.Kind(kind), err)
	}
	if r != nil {
		e.execute(r)
	}
	e.after()
}

// Writable is nothing to a core: like the runtime's, it tries again with Tick.
func (e *element) Writable(int64, int) {}

func (e *element) Wake(now int64) {
	if next, ok := e.core.Tick(travel.Instant(now)); e.t.lazy {
		e.due, e.woken = now+int64(time.Second), true
		if ok {
			e.due = int64(next)
		}
	}
	e.after()
}

func (e *element) Next(now int64) (int64, bool) {
	if e.t.lazy { // as the runtime does it: Tick says when it is due, and each event calls for one within a millisecond
		if e.due == 0 {
			e.due = now + int64(time.Millisecond)
		} else if !e.woken {
			e.due = min(e.due, now+int64(time.Millisecond))
		}
		e.woken = false
		return e.due, true
	}
	at, ok := e.core.Next(travel.Instant(now))
	return int64(at), ok
}

// after does what effects asked for, and what has become runnable.
func (e *element) after() {
	for {
		if len(e.later) > 0 {
			do := e.later[0]
			e.later = e.later[1:]
			do()
			continue
		}
		r := e.core.NextRun()
		if r == nil {
			return
		}
		e.execute(r)
	}
}

// The core's side: Store.

func (e *element) Get(id travel.ID) []byte {
	if e.here(id) {
		return e.t.objects[id]
	}
	return nil
}

func (e *element) here(id travel.ID) bool {
	pins, ok := e.has[id]
	if ok && pins == 0 && !e.keep && e.t.w.Rand.Float64() < e.t.evict {
		delete(e.has, id)
		return false
	}
	return ok
}

func (e *element) Pin(id travel.ID) bool {
	if !e.here(id) {
		return false
	}
	e.has[id]++
	return true
}

func (e *element) Unpin(id travel.ID) {
	if e.has[id]--; e.has[id] < 0 {
		e.t.fail("%s: %v unpinned too often", e.n.Name, id)
	}
}

// The core's side: Effects.

func (e *element) Send(to travel.Peer, kind travel.Kind, head, body []byte) error {
	link, ok := e.links[to]
	if !ok {
		e.t.fail("%s: Send to peer %d, which is not there", e.n.Name, to)
	}
	err := e.n.Send(link, uint16(kind), kind.Reserved(), head, body)
	if errors.Is(err, sim.ErrFull) {
		return fmt.Errorf("%w: %v", travel.ErrBackpressure, err)
	}
	return err
}

func (e *element) Part(f travel.FutureID, branch uint64, index uint32, last bool, data []byte) {
	p := e.planOf(f)
	if p.ended {
		e.t.fail("plan %d: a part after its end", p.id)
	}
	s, part := decodeStep(data)
	if last != (int32(part) == -1) {
		e.t.fail("plan %d: part %d of step %d has last=%v", p.id, int32(part), s, last)
	}
	p.results[[2]int{s, int(int32(part))}]++
}

func (e *element) planOf(f travel.FutureID) *plan {
	for _, p := range e.t.plans {
		if p.fut == f && p.origin == e.n.Index && p.life == e.n.Incarnation {
			return p
		}
	}
	e.t.fail("%s: future %d is unknown", e.n.Name, f)
	return nil
}

func (e *element) Complete(f travel.FutureID, o *travel.Outcome) {
	if o.HasReply {
		e.Part(f, 0, 0, true, o.Reply)
	}
	p := e.planOf(f)
	if p.ended {
		e.t.fail("plan %d ended twice", p.id)
	}
	p.ended, p.err, p.endedAt = true, o.Err, e.t.w.Now()
	if p.endedAt > p.deadline+int64(slack) {
		e.t.fail("plan %d ended %v after its deadline", p.id, time.Duration(p.endedAt-p.deadline))
	}
	if o.Err == nil {
		e.t.checkSuccess(p)
	}
	var late *travel.DeadlineError
	if errors.As(o.Err, &late) && len(late.Elements) == 0 {
		e.t.fail("plan %d: an error that names no element: %v", p.id, late)
	}
}

func (e *element) Stop(r *travel.Run) {
	if e.stop[r] {
		e.t.fail("%s: a run was stopped twice", e.n.Name)
	}
	e.stop[r] = true
}

func (e *element) Retire(any) {}

func (e *element) Keep() any {
	if !e.taking {
		e.t.fail("%s: Keep outside of Recv", e.n.Name)
	}
	e.kept++
	return keptCredit{e.n.Incarnation, e.n.Keep()}
}

// keptCredit is what Keep gave in one life of a node.
type keptCredit struct {
	life    uint64
	release func()
}

func (e *element) Release(credit any) {
	k, ok := credit.(keptCredit)
	if e.kept--; e.kept < 0 || !ok || k.life != e.n.Incarnation {
		e.t.fail("%s: credit released that was not kept", e.n.Name)
	}
	k.release()
}

func (e *element) Reserve(r *travel.Run) travel.Room {
	if e.used == e.room() {
		return travel.RoomShort
	}
	e.used++
	e.taken[r] = true
	return travel.RoomTaken
}

// Freeing: what is given back here is free at once.
func (e *element) Freeing() bool { return false }

func (e *element) Unreserve(r *travel.Run) {
	e.programs.leave(r)
	if e.taken[r] {
		delete(e.taken, r)
		e.leave()
	}
}

// leave gives a place back from within an effect.
func (e *element) leave() {
	if e.used--; e.used < 0 {
		e.t.fail("%s: more places given back than taken", e.n.Name)
	}
	e.later = append(e.later, func() { e.core.RoomFreed() })
}

// room is how many places for runs there are here; 0: as many as come.
func (e *element) room() int {
	if e.t.narrow > 0 && e.n.Index >= e.t.narrow {
		return 0
	}
	return e.t.room
}

// principal is whom a run is for; this element's own are nobody's.
func (e *element) principal(r *travel.Run) string {
	if n := e.back[r.Origin()]; n != nil {
		return principalOf(n)
	}
	return ""
}

// place is a place for a run to begin in; false: it waits for one.
func (e *element) place(r *travel.Run) bool {
	switch {
	case e.room() == 0 || e.state[workerOf(r)] > 0:
	case e.taken[r]:
		delete(e.taken, r)
	case e.core.AwaitsRoom(e.principal(r)) || e.used == e.room():
		e.core.Await(e.now(), r, 1)
		return false
	default:
		e.used++
	}
	return true
}

func (e *element) FreeState(id travel.InvocationID, state any) {
	w, ok := state.(worker)
	if !ok || w.inv != id || e.state[w] == 0 {
		e.t.fail("%s: state of %v freed, which is not held", e.n.Name, id)
	}
	if e.busy[w] > 0 {
		e.t.fail("%s: state of %v freed while a run uses it", e.n.Name, id)
	}
	delete(e.state, w)
	if e.room() > 0 {
		e.leave()
	}
}

func (e *element) Object(id travel.ID, data []byte) {
	got := bytes.Clone(data)
	e.n.Do(e.t.w.Between(0, 300*time.Microsecond), func() {
		if travel.ID(sha256.Sum256(got)) != id {
			e.t.fail("%s: object %v arrived damaged", e.n.Name, id)
		}
		if e.t.w.Rand.Float64() < e.t.corrupt {
			e.core.ObjectFailed(e.now(), id, errors.New("its hash does not match"))
		} else {
			if _, ok := e.has[id]; !ok {
				e.has[id] = 0
			}
			e.core.ObjectArrived(e.now(), id)
		}
		e.after()
	})
}

func (e *element) Sever(p travel.Peer, err error) {
	e.t.severed++
	link := e.links[p]
	e.later = append(e.later, func() { e.t.w.CutOne(e.n, link) })
}

// The runtime's side.

func (e *element) execute(r *travel.Run) {
	delete(e.stop, r)
	if !e.program(r) || !e.place(r) {
		return
	}
	id, i := decodeStep(r.Payload)
	p := e.t.plans[id]
	s := &p.steps[i]
	if s.runs++; s.runs > 1 {
		e.t.fail("plan %d: step %d ran twice", id, i)
	}
	if e.n.Index != s.at {
		e.t.fail("plan %d: step %d ran on %s", id, i, e.n.Name)
	}
	if r.Binding().What != s.what {
		e.t.fail("plan %d: step %d ran the wrong function", id, i)
	}
	if _, ok := e.has[s.what.Image]; !ok {
		e.t.fail("plan %d: step %d ran without its code", id, i)
	}
	inv, own := r.Invocation(), workerOf(r)
	if e.canceled[inv] && e.t.limits.Tombstones == 0 {
		e.t.fail("plan %d: step %d ran after its CANCEL had come", id, i)
	}
	if e.t.w.Now() > p.deadline+int64(50*time.Millisecond) {
		e.t.fail("plan %d: step %d ran %v after the deadline", id, i, time.Duration(e.t.w.Now()-p.deadline))
	}
	if p.stateful {
		if e.busy[own]++; e.busy[own] > 1 || own.number != s.worker {
			e.t.fail("plan %d: %d branches of worker %d run on %s at once, step %d is worker %d's", id, e.busy[own], own.number, e.n.Name, i, s.worker)
		}
		e.atOnce(p, inv)
	}
	if life := p.kept[s.place()]; life != 0 && (life != e.n.Incarnation || r.State() == nil) {
		p.forgot = fmt.Sprintf("step %d ran on %s without the scratch that an earlier step had kept there", i, e.n.Name)
		if life == e.n.Incarnation && (!p.ended || e.t.ordered && e.t.limits.Tombstones == 0) {
			e.t.fail("plan %d: %s", id, p.forgot)
		}
	}
	if s.hold && e.core.HoldState(r, own) == nil {
		e.state[own] = 1
		p.kept[s.place()] = e.n.Incarnation
	}
	if s.run == 0 {
		e.act(r, p, i, 0)
		return
	}
	e.core.Own(r)
	if s.split && !e.stop[r] {
		e.spawn(r, p, i)
	}
	e.n.Do(s.run, func() { e.act(r, p, i, 0); e.after() })
}

// worker is one of an invocation's at an element.
type worker struct {
	inv    travel.InvocationID
	number uint8
}

func workerOf(r *travel.Run) worker {
	n, _ := r.Worker()
	return worker{r.Invocation(), n}
}

// place is where a step finds the scratch of earlier ones.
func (s *step) place() [2]int { return [2]int{s.at, int(s.worker)} }

// atOnce counts how many of an invocation's workers run here: more than one, somewhere, and never more than may.
func (e *element) atOnce(p *plan, inv travel.InvocationID) {
	n := 0
	for w, busy := range e.busy {
		if w.inv == inv && busy > 0 {
			n++
		}
	}
	if e.t.atOnce = max(e.t.atOnce, n); e.t.limits.Workers > 0 && n > e.t.limits.Workers {
		e.t.fail("plan %d: %d workers run on %s at once, %d may", p.id, n, e.n.Name, e.t.limits.Workers)
	}
}

// to is the peer where a plan's steps at a node happen: it is in the life in which the plan's table names it.
func (e *element) to(p *plan, node int) travel.Peer {
	if node == e.n.Index {
		return travel.Self
	}
	switch ps := e.peers[node]; {
	case len(ps) == 0 || e.back[ps[0]].Incarnation != p.elements[node]:
		return 999 // no endpoint
	case len(ps) == 1:
		return ps[0]
	default:
		return ps[e.t.w.Rand.IntN(len(ps))]
	}
}

// name makes a plan's table name the elements as they live now, as far as the plan's origin knows.
func (e *element) name(p *plan, b *travel.Binding) {
	p.elements = map[int]uint64{}
	for i, n := range e.t.w.Nodes()[:e.t.members] {
		p.elements[i] = n.Incarnation
		if ps := e.peers[i]; len(ps) > 0 {
			p.elements[i] = e.back[ps[0]].Incarnation
		}
		if !slices.Contains(b.Elements, p.elements[i]) {
			b.Elements = append(b.Elements, p.elements[i])
		}
	}
}

// named is what a run sends the step i on as; where there is no binding left for another function it is the same one.
func (e *element) named(r *travel.Run, p *plan, i int) (b *travel.Binding, done func()) {
	own := r.Binding().What
	if p.mixed && i%4 == 3 {
		if b := e.make(r, p, i); b != nil {
			return b, func() { e.core.Unbind(b) }
		}
	}
	p.steps[i].what = p.makes(i, own)
	if p.steps[i].what == own {
		return nil, func() {}
	}
	b, err := e.core.BindAs(e.now(), p.steps[i].what)
	if err != nil {
		p.steps[i].what = own
		return nil, func() {}
	}
	e.t.derived++
	return b, func() { e.core.Unbind(b) }
}

// make has a run make a function that only this node has; nil: it may make no more.
func (e *element) make(r *travel.Run, p *plan, i int) *travel.Binding {
	code := bytes.Repeat(binary.LittleEndian.AppendUint32(nil, uint32(p.id)), 1+i*i*40)
	id := travel.ID(sha256.Sum256(code))
	e.t.objects[id] = code
	if _, ok := e.has[id]; !ok {
		e.has[id] = 0
	}
	e.keep = true
	b, err := e.core.Make(e.now(), r, id)
	if e.keep = false; err != nil {
		return nil
	}
	p.steps[i].what = b.What
	e.t.made++
	return b
}

// spawn forks what a step has not forked yet; false: there is no room for the next one.
func (e *element) spawn(r *travel.Run, p *plan, i int) bool {
	s := &p.steps[i]
	for ; s.forked < len(s.forks) && !r.Ended(); s.forked++ {
		f := s.forks[s.forked]
		b, done := e.named(r, p, f)
		_, err := e.core.ForkAs(e.now(), r, e.to(p, p.steps[f].at), p.steps[f].worker, b, p.payload(f))
		done()
		if err != nil {
			if !r.Ended() && !errors.Is(err, travel.ErrBackpressure) {
				e.t.fail("plan %d: a fork failed with %v but its branch goes on", p.id, err)
			}
			return r.Ended()
		}
	}
	return true
}

// act does a step's work from its part on, and finishes the run.
func (e *element) act(r *travel.Run, p *plan, i, part int) {
	s := &p.steps[i]
	e.core.Awake(r)
	if !e.spawn(r, p, i) {
		e.wait(r, p, i, part)
		return
	}
	for ; part < s.parts && !r.Ended(); part++ {
		err := e.core.Part(e.now(), r, p.result(i, part))
		if errors.Is(err, travel.ErrBackpressure) && !r.Ended() {
			e.wait(r, p, i, part)
			return
		}
	}
	end := travel.End{}
	switch {
	case r.Ended():
	case s.fail:
		end = travel.End{Code: travel.CodeFunction, Status: 7, Text: "on purpose"}
	case s.next >= 0:
		b, done := e.named(r, p, s.next)
		err := e.core.ForwardAs(e.now(), r, e.to(p, p.steps[s.next].at), p.steps[s.next].worker, b, p.payload(s.next))
		done()
		if errors.Is(err, travel.ErrBackpressure) && !r.Ended() {
			e.wait(r, p, i, part)
			return
		}
	case s.reply:
		end.HasResult, end.Result = true, p.result(i, -1)
	}
	if p.stateful {
		e.busy[workerOf(r)]--
	}
	leaves := e.room() > 0 && e.state[workerOf(r)] == 0
	e.core.Finish(e.now(), r, end)
	if leaves {
		e.leave()
	}
}

// wait goes on with a step a little later, when there may be room.
func (e *element) wait(r *travel.Run, p *plan, i, part int) {
	if r.Payload != nil {
		e.core.Own(r)
	}
	e.core.Wait(e.now(), r)
	e.n.Do(100*time.Microsecond, func() { e.act(r, p, i, part); e.after() })
}

func (e *element) start(p *plan, deadline time.Duration, object bool) {
	if object {
		for _, id := range []travel.ID{p.image, p.table} {
			if _, ok := e.has[id]; !ok && !id.IsZero() {
				e.has[id] = 0
			}
		}
	}
	e.keep = true
	defer func() { e.keep = false }()
	b, err := e.core.BindAs(e.now(), travel.What{Image: p.image, Table: p.table, Form: p.form})
	if err != nil {
		p.startError, p.ended = err, true
		return
	}
	p.life = e.n.Incarnation
	p.started, p.deadline = e.t.w.Now(), e.t.w.Now()+int64(deadline)
	e.name(p, b)
	a := travel.StartArgs{Binding: b, Deadline: travel.Instant(p.deadline), Stateful: p.stateful, Workers: uint8(p.workers)}
	for _, r := range p.roots {
		p.steps[r].what = b.What
		a.Roots = append(a.Roots, travel.Root{To: e.to(p, p.steps[r].at), Worker: p.steps[r].worker, Payload: p.payload(r)})
	}
	a.Partly = e.t.patient
	p.fut, err = e.core.Start(e.now(), &a)
	e.startOn(p, &a, err)
}

// startOn goes on with a start that found no room for all roots, if the trial's starts wait for it.
func (e *element) startOn(p *plan, a *travel.StartArgs, err error) {
	switch {
	case a.Partly && errors.Is(err, travel.ErrBackpressure):
		e.n.Do(200*time.Microsecond, func() {
			if p.fut == 0 {
				p.fut, err = e.core.Start(e.now(), a)
			} else {
				err = e.core.Resume(e.now(), p.fut, a)
			}
			e.startOn(p, a, err)
		})
		e.after()
		return
	case err != nil && !errors.Is(err, travel.ErrNoFuture):
		p.startError, p.ended = err, true
		p.endedAt = e.t.w.Now()
	}
	e.core.Unbind(a.Binding)
	e.after()
}
