package inject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// Function is an image, with a shard table or without, ready to be started
// from here. Nothing is deployed: the first start takes the code along.
type Function struct {
	rt       *Runtime
	img      *image.Image
	table    *cluster.Table
	binding  *travel.Binding
	stateful bool
	ids      [2]travel.ID
	peers    []travel.Peer  // by element, as last resolved; under Runtime.mu, as what follows
	spare    *Future        // Do's; free if its last invocation is freed
	at       time.Time      // the last deadline, and …
	until    travel.Instant // … when that is: many calls in a row have one context
}

// Root says where a branch starts and with which payload.
type Root struct {
	// To is the element. If it is nil, Element is the index in the function's table; without a
	// table it is this element itself.
	To      *fabric.Endpoint
	Element uint32
	Worker  uint8 // of the element's, if it has several (Options.Workers)
	Payload []byte
}

// Options go with a start. The zero value is usable.
type Options struct {
	// Hops is how often a branch may go on or fork, one after the other. If it is 0: travel.DefaultHops, and without bound if the function
	// keeps scratch, since it can tell that it gets on. travel.MaxHops is no bound.
	Hops     uint16
	Branches uint32        // at most so many branches in all; the runtime's limit at once if 0
	Trace    *travel.Trace // W3C trace context to take along
	// Workers is how many of the invocation's branches run at once at each element, each with scratch of its own: of a function that
	// starts by chunk (image.StartChunk). 0 means one. An element lets no more of them work at once than its own bound (Config.Limits.Workers).
	Workers uint8
}

// ErrRanges says that a function whose manifest asks for ranges of rows cannot
// run on a dataset whose rows are not in ranges.
var ErrRanges = errors.New("inject: the function needs block sharding")

// Prepare makes a function of an image and, if table is not nil, the data it
// runs on. Close it when it is not needed any more.
func (rt *Runtime) Prepare(img *image.Image, table *cluster.Table) (*Function, error) {
	return rt.PrepareAs(img, table, forms.Auto)
}

// PrepareAs is Prepare for a function that is to run in one form of its code only, everywhere it goes.
func (rt *Runtime) PrepareAs(img *image.Image, table *cluster.Table, form forms.Wish) (*Function, error) {
	if img == nil || img.Size() == 0 {
		return nil, errors.New("inject: no image of a function: xrdma.Lookup finds one, image.Build and image.Parse make one")
	}
	m := img.Call()
	f := &Function{rt: rt, img: img, table: table, stateful: m.Limits.ScratchBytes > 0}
	if m.Ranges && table != nil && !table.Sharding.Contiguous() {
		return nil, fmt.Errorf("%w: %s: %s", ErrRanges, img.Name(), dealtText(table))
	}
	objects := []*object{rt.imageObject(img)}
	f.ids[0] = objects[0].id
	if table != nil {
		b, err := table.Encode()
		if err != nil {
			return nil, err
		}
		o, err := rt.tableObject(b)
		if err != nil {
			return nil, err
		}
		f.ids[1], f.table = o.id, o.table
		f.peers = make([]travel.Peer, len(o.table.Shards))
		objects = append(objects, o)
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for i, o := range objects {
		if _, err := rt.store.add(o); err != nil {
			rt.unpin(f.ids[:i])
			return nil, err
		}
		rt.store.Pin(o.id)
	}
	var err error
	if f.binding, err = rt.core.BindAs(rt.now(), travel.What{Image: f.ids[0], Table: f.ids[1], Form: uint8(form)}); err != nil {
		rt.unpin(f.ids[:len(objects)])
		return nil, err
	}
	if f.binding.Name = img.Name(); f.binding.Elements == nil {
		f.binding.Elements = f.reach()
	}
	return f, nil
}

// reach are the elements that the function's branches may go to besides those where they are started: all of its table, if its code
// goes anywhere. Not all forms of code say what they call.
func (f *Function) reach() (incs []uint64) {
	calls := f.img.Call().Imports
	if f.table == nil || len(calls) > 0 && !slices.Contains(calls, "forward") && !slices.Contains(calls, "fork") {
		return nil
	}
	for i := range f.table.Shards {
		incs = append(incs, uint64(f.table.Shards[i].Incarnation))
	}
	return incs
}

// Image is the image of an identity, without signatures, if the code cache has it; else nil. A caller that starts one function again and again finds it
// here, and parses it once.
func (rt *Runtime) Image(id image.ID) *image.Image {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if c := rt.store.codes[id]; c != nil {
		return c.img.Unsigned()
	}
	return nil
}

// imageObject is the object of an image: the store's, or a new one.
func (rt *Runtime) imageObject(img *image.Image) *object {
	id := travel.ID(img.CopyID())
	rt.mu.Lock()
	o := rt.store.byID[id]
	rt.mu.Unlock()
	if o != nil { // the store may have dropped it by then, and takes it again
		return o
	}
	return newImage(img, img.Encode(), rt.policy())
}

// tableObject is the object of an encoded table: the store's, if it is one of those that calls were prepared for last, or it is parsed.
func (rt *Runtime) tableObject(b []byte) (*object, error) {
	rt.mu.Lock()
	for _, id := range rt.tables {
		if o := rt.store.byID[id]; o != nil && o.table != nil && bytes.Equal(o.bytes, b) {
			rt.mu.Unlock()
			return &object{id: o.id, bytes: o.bytes, table: o.table}, nil // the store may have dropped it by then, and takes it again
		}
	}
	rt.mu.Unlock()
	o, err := parseObject(b, nil)
	if err != nil {
		return nil, err
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.tables[rt.tabled%keptTables] = o.id
	rt.tabled++
	return o, nil
}

func (rt *Runtime) unpin(ids []travel.ID) {
	for _, id := range ids {
		if !id.IsZero() {
			rt.store.Unpin(id)
		}
	}
}

// Image is the function's.
func (f *Function) Image() *image.Image { return f.img }

// Table is the function's shard table, nil if it has none.
func (f *Function) Table() *cluster.Table { return f.table }

// Close lets go of the function; invocations that run go on.
func (f *Function) Close() {
	f.rt.mu.Lock()
	defer f.rt.mu.Unlock()
	if f.binding != nil {
		f.rt.core.Unbind(f.binding)
		f.rt.unpin(f.ids[:])
		f.binding = nil
	}
}

// Start starts an invocation with a branch for each root. Its time ends with
// the context's deadline, or after the element's Limits.OpTime if there is none; once
// started, canceling the context does not end it: Future.Cancel does. Payloads are the caller's
// again when Start returns, except those for this element itself. If a queue is full, Start waits.
//
// With several roots that find no room at once, those that do are on their way while Start
// waits for the others; each root starts once. If Start then fails, because the time is
// over or an element lost, what was started is canceled; if a root fails meanwhile,
// Start returns a future that has ended with that error.
func (f *Function) Start(ctx context.Context, roots []Root, o Options) (*Future, error) {
	fut := newFuture(f.rt)
	if err := f.start(ctx, fut, roots, o); err != nil {
		return nil, err
	}
	return fut, nil
}

// start starts fut; it waits while there is no room.
func (f *Function) start(ctx context.Context, fut *Future, roots []Root, o Options) error {
	if ctx.Err() != nil {
		return f.startError(roots, context.Cause(ctx))
	}
	if err := f.checkWorkers(&o); err != nil {
		return f.startError(roots, err)
	}
	fut.function = f.img.Name()
	full, err := f.tryStart(ctx, fut, roots, o)
	if err == nil {
		return nil
	}
	if err = f.startSlow(ctx, fut, roots, o, full, err); err != nil && fut.sent > 0 {
		fut.Cancel()
	}
	return err
}

// startError is why nothing was started; it names the function, and the elements where it was to begin.
func (f *Function) startError(roots []Root, err error) error {
	if errors.Is(err, fabric.ErrPeerLost) {
		err = fmt.Errorf("%w: %w", travel.ErrPeerLost, err)
	}
	return fmt.Errorf("inject: start %s%s: %w", f.img.Name(), f.begins(roots), err)
}

// maxNamed is how many elements an error names.
const maxNamed = 8

// begins says where roots were to begin, as in " on a, b and 3 more".
func (f *Function) begins(roots []Root) string {
	var names []string
	seen := map[string]bool{"": true}
	for i := range roots {
		name := ""
		switch r := &roots[i]; {
		case r.To != nil:
			name = r.To.Name()
		case f.table != nil && int(r.Element) < len(f.table.Shards):
			name = f.table.Shards[r.Element].Element
		}
		if !seen[name] && len(names) < maxNamed {
			names = append(names, name)
		}
		seen[name] = true
	}
	switch more := len(seen) - 1 - len(names); {
	case len(names) == 0:
		return ""
	case more > 0:
		return fmt.Sprintf(" on %s and %d more", strings.Join(names, ", "), more)
	}
	return " on " + strings.Join(names, ", ")
}

// startSlow goes on after a start that failed: as soon as there is room, within
// the invocation's time.
func (f *Function) startSlow(ctx context.Context, fut *Future, roots []Root, o Options, full *fabric.Endpoint, err error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultTime)
		defer cancel()
	}
	for try, sent := 0, fut.sent; errors.Is(err, travel.ErrBackpressure); try++ {
		if fut.sent > sent {
			try, sent = 0, fut.sent // it goes on
		}
		if werr := waitRoom(ctx, try, full); werr != nil && !(fut.sent > 0 && fut.ended()) {
			return f.startError(roots, fmt.Errorf("%w: %d of %d branches were started: %w", err, fut.sent, len(roots), werr))
		}
		if full, err = f.tryStart(ctx, fut, roots, o); err == nil {
			return nil
		}
	}
	return f.startError(roots, err)
}

const (
	// defaultTime is an invocation's time where the context has no deadline.
	defaultTime = 30 * time.Second
	// roomPause and maxRoomPause bound how long one waits for what the fabric does
	// not tell of: transfers being acknowledged, tables being emptied.
	roomPause    = 100 * time.Microsecond
	maxRoomPause = 2 * time.Millisecond
)

// waitRoom waits before what found no room is tried again, for the try-th time:
// for credit of the endpoint, if there is one, and after the first time a moment longer.
func waitRoom(ctx context.Context, try int, full *fabric.Endpoint) error {
	if full != nil {
		if err := full.WaitRoom(ctx); err != nil {
			return err
		}
	}
	if try == 0 {
		return nil
	}
	timer := time.NewTimer(min(roomPause<<min(try, 8), maxRoomPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryStart starts fut, or goes on with it, or says which endpoint may be full.
func (f *Function) tryStart(ctx context.Context, fut *Future, roots []Root, o Options) (full *fabric.Endpoint, err error) {
	rt := f.rt
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if fut.sent > 0 && fut.ended() {
		return nil, nil // a root failed: the future says so
	}
	if f.binding == nil || rt.closed {
		return nil, fabric.ErrClosed
	}
	now := travel.Instant(rt.layer.RecentNow())
	a := &rt.args
	*a = travel.StartArgs{Binding: f.binding, Roots: a.Roots[:0], Hops: o.Hops, Branches: o.Branches, Stateful: f.stateful, Workers: o.Workers, Trace: o.Trace,
		Deadline: now + travel.Instant(defaultTime), Partly: len(roots) > 1, Sent: fut.sent}
	if a.Hops == 0 && f.stateful {
		a.Hops = travel.MaxHops
	}
	if at, ok := ctx.Deadline(); ok {
		a.Deadline = travel.Instant(rt.layer.At(at))
	}
	for i := range roots {
		var to travel.Peer
		if i >= fut.sent {
			if to, err = f.resolve(&roots[i]); err != nil {
				return nil, err
			}
		}
		a.Roots = append(a.Roots, travel.Root{To: to, Worker: roots[i].Worker, Payload: roots[i].Payload})
	}
	if fut.sent > 0 {
		return f.resume(now, fut, a)
	}
	id, err := rt.core.Start(now, a)
	if err != nil && errors.Is(err, travel.ErrBackpressure) {
		full = rt.endpoint(a.Roots[a.Sent].To)
	}
	if id == 0 {
		return full, err
	}
	fut.id, fut.deadline = id, a.Deadline
	rt.futures.add(fut)
	fut.sent = a.Sent
	rt.started(now)
	return full, err
}

// resume goes on with a start that sent some of its roots. mu is held.
func (f *Function) resume(now travel.Instant, fut *Future, a *travel.StartArgs) (full *fabric.Endpoint, err error) {
	rt := f.rt
	a.Deadline = fut.deadline
	err = rt.core.Resume(now, fut.id, a)
	fut.sent = a.Sent
	switch {
	case err == nil:
	case errors.Is(err, travel.ErrBackpressure):
		full = rt.endpoint(a.Roots[a.Sent].To)
	default:
		rt.futures.remove(fut.id) // the core has let go of it
	}
	rt.started(now)
	return full, err
}

// started sees to what a start leaves to do. mu is held.
func (rt *Runtime) started(now travel.Instant) {
	rt.soon(now)
	if rt.core.Ready() {
		rt.afterAsync()
	}
}

// resolve finds a root's element. mu is held.
func (f *Function) resolve(r *Root) (travel.Peer, error) {
	rt := f.rt
	if r.To != nil {
		if n := rt.number(r.To); n != travel.Self && rt.about[n].incarnation != 0 { // of a member
			return n, nil
		}
		if n, ok := rt.numbers[r.To.Incarnation()]; ok {
			return n, nil
		}
		if r.To.Incarnation() == rt.el.Incarnation() {
			return travel.Self, nil
		}
		return 0, fmt.Errorf("inject: %w: %s", travel.ErrNoPeer, r.To)
	}
	if f.table == nil {
		return travel.Self, nil
	}
	if int(r.Element) >= len(f.table.Shards) {
		return 0, fmt.Errorf("inject: element %d of %s: it has %d", r.Element, f.table.Name, len(f.table.Shards))
	}
	s := &f.table.Shards[r.Element]
	if s.Incarnation == rt.el.Incarnation() {
		return travel.Self, nil
	}
	at := &f.peers[r.Element]
	if *at != travel.Self && rt.about[*at].incarnation == s.Incarnation {
		return *at, nil
	}
	n, ok := rt.element(s.Incarnation)
	if !ok {
		return 0, fmt.Errorf("inject: %w: not connected to %s (%v), which holds part %d of %s; it may have restarted: fetch the table again", travel.ErrNoPeer, s.Element, s.Incarnation, r.Element, f.table.Name)
	}
	*at = n
	return n, nil
}

// Do starts one branch, waits, and appends its reply to dst. It is the fast
// way for one function that gives one answer. When the context ends, the
// invocation is canceled.
func (f *Function) Do(ctx context.Context, root Root, dst []byte) ([]byte, error) {
	fut := f.ask(ctx, &root)
	if fut == nil {
		fut = newFuture(f.rt)
		fut.plain = true
		if err := f.start(ctx, fut, []Root{root}, Options{}); err != nil {
			return dst, err
		}
	}
	if err := fut.wait(ctx); err != nil {
		fut.Cancel() // it ends at once, if it has not meanwhile
		if fut.err != nil {
			fut.err = fmt.Errorf("%w: %w", fut.err, err)
		}
	}
	err := fut.err
	if err == nil {
		dst = append(dst, fut.data...)
	}
	fut.freed.Store(uint64(fut.id))
	return dst, err
}

// ask starts a branch in the quick way, in the function's spare future if that
// is free; nil: nothing was started.
func (f *Function) ask(ctx context.Context, root *Root) *Future {
	if ctx.Err() != nil || f.stateful {
		return nil
	}
	rt := f.rt
	at, timed := ctx.Deadline()
	rt.mu.Lock()
	id, deadline := f.askNow(at, timed, root)
	if id == 0 {
		rt.mu.Unlock()
		return nil
	}
	fut := f.spare // from here on it costs nothing: the branch is on its way
	if fut == nil || fut.freed.Load() != uint64(fut.id) {
		fut = newFuture(rt)
		fut.plain, fut.function, fut.sent = true, f.img.Name(), 1
		f.spare = fut
	}
	fut.id, fut.deadline = id, deadline
	fut.data, fut.err = fut.data[:0], nil
	if cap(fut.data) > keptDataBytes {
		fut.data = nil
	}
	rt.futures.add(fut)
	rt.soon(travel.Instant(rt.layer.RecentNow()))
	rt.mu.Unlock()
	return fut
}

// askNow starts a branch, or returns 0. mu is held, until there is a future of that id.
func (f *Function) askNow(at time.Time, timed bool, root *Root) (id travel.FutureID, deadline travel.Instant) {
	rt := f.rt
	if f.binding == nil || rt.closed {
		return 0, 0
	}
	to, err := f.resolve(root)
	if err != nil || to == travel.Self {
		return 0, 0
	}
	now := travel.Instant(rt.layer.RecentNow())
	deadline = now + travel.Instant(defaultTime)
	if timed {
		if at != f.at {
			f.at, f.until = at, travel.Instant(rt.layer.At(at))
		}
		deadline = f.until
	}
	return rt.core.Ask(now, f.binding, to, deadline, root.Payload), deadline
}

// soon makes the core's Tick run within a millisecond, for what it batches.
func (rt *Runtime) soon(now travel.Instant) { rt.layer.TickBy(int64(now) + int64(time.Millisecond)) }

// afterAsync runs after on its own: the caller holds mu.
func (rt *Runtime) afterAsync() {
	if rt.closed {
		return
	}
	rt.work.Add(1)
	go func() {
		defer rt.work.Done()
		rt.after()
	}()
}
