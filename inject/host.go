package inject

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// host is one run: what the function reaches through its host calls. It is
// used by the goroutine that runs the function, but for stop.
type host struct {
	rt        *Runtime
	run       *travel.Run
	payload   []byte
	bound     *bound
	principal string
	worker    uint8 // which the run is of so many that its element has of the invocation
	workers   uint8
	instance  abi.Instance
	held      *held
	place     abi.Place         // waited for, and not used yet
	scratch   uint64            // that it waits, or waited, to have room for
	again     bool              // it has started over
	load      *load             // that it waits for
	functions []*travel.Binding // that it has named, each with a reference; a number is an index and one
	slices    uint64            // of its time that have ended
	took      time.Duration     // all of it, as its engine says: 0 if that does not know
	untypical bool              // others take another time
	sent      uint64            // bytes that left while it ran
	acted     bool              // it has sent or written something before its end

	message fabric.Message // being handled, while leads
	leads   bool           // this goroutine drives the fabric
	away    bool           // released: others go on with what is to be done

	computes bool // it has a turn (turns)

	stopped    atomic.Bool
	now        travel.Instant // when the message came, while that is recent enough; else 0
	deadline   travel.Instant // as it was when the run began: the invocation's own is the core's
	reply      []byte
	replied    bool
	over       bool   // the branch has moved on or failed
	goes       bool   // it moves on as the run ends
	to         uint32 // there
	onward     []byte // with that
	dealt      bool   // it asked for a range of rows where there is none
	lastError  string // of a host call, and the status that stood for it
	lastStatus abi.Status
	lastCall   string // which that was; "": lastError says it all
	limited    bool   // lastError is of a limit that a manifest can raise
	crowded    bool   // lastError is of room that others take
	said       []byte // the start of what it logged last, a byte more than is told

	endSpan func(error) // of a traced run

	ctx    context.Context // made when something waits
	cancel context.CancelFunc
}

// keptReplyBytes is the reply buffer an idle host keeps.
const keptReplyBytes = 64 << 10

// saidBytes is how much of what a function logged last is told if it fails: a sentence or two.
const saidBytes = 256

// host makes a run's host. mu is held.
func (rt *Runtime) host(run *travel.Run) *host {
	if h, ok := run.User.(*host); ok {
		return rt.resume(h)
	}
	return rt.equip(rt.idleHost(), run)
}

func (rt *Runtime) idleHost() *host {
	if n := len(rt.hosts); n > 0 {
		h := rt.hosts[n-1]
		rt.hosts = rt.hosts[:n-1]
		return h
	}
	return &host{rt: rt}
}

// equip gives a host its run and what that needs, as far as it is ready. mu is held.
func (rt *Runtime) equip(h *host, run *travel.Run) *host {
	h.run, h.payload, h.deadline = run, run.Payload, run.Deadline()
	run.User = h
	h.principal = rt.principal(run)
	h.worker, h.workers = run.Worker()
	states, _ := run.State().(*held)
	if state := states.of(run.Binding().What); state != nil {
		h.held, h.bound = state, state.bound
		h.bound.runs++
	} else {
		if h.bound = rt.lookup(run, h.principal); h.bound != nil {
			h.instance = rt.takeSpare(h.bound)
		}
	}
	return h
}

// freeHost takes a host back. mu is held.
func (rt *Runtime) freeHost(h *host) {
	if h.cancel != nil {
		h.cancel()
	}
	reply := h.reply[:0]
	if cap(reply) > keptReplyBytes {
		reply = nil
	}
	h.run, h.bound, h.instance, h.held, h.message, h.leads, h.away, h.now = nil, nil, nil, nil, fabric.Message{}, false, false, 0
	if h.stopped.Load() {
		h.stopped.Store(false)
	}
	h.reply, h.replied, h.over, h.lastError, h.lastStatus, h.limited = reply, false, false, "", abi.OK, false
	h.ctx, h.cancel, h.principal, h.dealt, h.endSpan = nil, nil, "", false, nil
	h.goes, h.onward, h.payload, h.said, h.lastCall = false, nil, nil, h.said[:0], ""
	h.scratch, h.again, h.acted, h.crowded = 0, false, false, false
	h.load, h.slices, h.took, h.untypical, h.sent = nil, 0, 0, false, 0
	h.unname()
	rt.hosts = append(rt.hosts, h)
}

// stop asks the run to end; called under mu, from any goroutine.
func (h *host) stop() {
	h.stopped.Store(true)
	if h.cancel != nil {
		h.cancel()
	}
}

// release lets others do what this goroutine would do next: drive the fabric
// from here on, and run the branches that wait for a worker.
func (h *host) release() {
	h.now = 0
	h.rests()
	if h.instance != nil {
		h.instance.Waits()
	}
	if h.away {
		return
	}
	h.away = true
	if h.leads {
		h.leads = false
		h.own(false)
		h.message.HandOff()
	}
	h.rt.after()
}

// own keeps the payload of a run whose message's body is about to go: of one that has yet to begin, and of one that may start
// over (Scratch).
func (h *host) own(begins bool) {
	h.rt.mu.Lock()
	if h.run != nil && (begins || h.run.Stateful()) {
		h.rt.core.Own(h.run)
		h.payload = h.run.Payload
	}
	h.rt.mu.Unlock()
}

// time is now, or when the message came if the run is in its first slice.
func (h *host) time() travel.Instant {
	if h.now != 0 {
		return h.now
	}
	return h.rt.now()
}

// Tick ends a slice of the guest's time.
func (h *host) Tick() error {
	h.now = 0
	h.slices++
	if h.computes {
		if h.rt.turns.spare.Load() <= 0 || h.slices%asideEvery == 0 {
			runtime.Gosched()
		}
	} else {
		h.release()
		h.compute()
	}
	if h.stopped.Load() {
		return errStopped
	}
	if h.rt.now() >= h.deadline {
		return context.DeadlineExceeded
	}
	return nil
}

// dataset is the table of a dataset that a host call names; nil if there is none of that number.
func (h *host) dataset(call string, dataset uint32) *cluster.Table {
	t := h.bound.table
	switch {
	case t == nil:
		h.told(call, abi.ErrArgument)
		h.lastError = "the function was not called on a dataset"
	case dataset != 0:
		h.told(call, abi.ErrArgument)
		h.lastError = fmt.Sprintf("there is no dataset %d: a call has one, number 0", dataset)
		return nil
	}
	return t
}

// ShardRows is the range of a dataset's rows that an element holds.
func (h *host) ShardRows(dataset, element uint32) (first, count uint64, st abi.Status) {
	t := h.dataset("shard_rows", dataset)
	if t == nil {
		return 0, 0, abi.ErrArgument
	}
	first, count, ranges, ok := t.Range(h.element(element))
	switch {
	case !ok:
		return 0, 0, h.told("shard_rows", abi.ErrArgument)
	case !ranges:
		h.dealt = true
		h.told("shard_rows", abi.ErrUnsupported)
		return 0, 0, abi.ErrUnsupported
	}
	return first, count, abi.OK
}

// Range is ShardRows of dataset 0 for the engine's own use.
func (h *host) Range(element uint32) (first, count uint64, ok bool) {
	if h.bound.table == nil || h.bound.code.img.Call().Start == image.StartChunk { // whose elements differ from call to call
		return 0, 0, false
	}
	first, count, ranges, ok := h.bound.table.Range(element)
	return first, count, ok && ranges
}

// Owner says where a row is.
func (h *host) Owner(dataset uint32, row uint64) (element uint32, local uint64, st abi.Status) {
	t := h.dataset("owner", dataset)
	if t == nil {
		return 0, 0, abi.ErrArgument
	}
	element, local, ok := t.Owner(row)
	if !ok {
		return 0, 0, h.told("owner", abi.ErrArgument)
	}
	return element * uint32(h.workers), local, abi.OK
}

// Row says which row an element has at an index.
func (h *host) Row(dataset, element uint32, local uint64) (row uint64, st abi.Status) {
	t := h.dataset("row", dataset)
	if t == nil {
		return 0, abi.ErrArgument
	}
	row, ok := t.Row(h.element(element), local)
	if !ok {
		return 0, h.told("row", abi.ErrArgument)
	}
	return row, abi.OK
}

// Reply ends the branch with its result; it is sent when the function returns.
func (h *host) Reply(data []byte) abi.Status {
	if h.replied || h.over {
		return abi.ErrDone
	}
	if len(data) > maxReplyBytes {
		return h.replyLong(data)
	}
	h.reply, h.replied = append(h.reply[:0], data...), true
	return abi.OK
}

// replyLong sends all but the last piece of a long reply ahead.
func (h *host) replyLong(data []byte) abi.Status {
	for len(data) > maxReplyBytes {
		if st := h.ReplyPart(data[:maxReplyBytes]); st != abi.OK {
			return st
		}
		data = data[maxReplyBytes:]
	}
	h.reply, h.replied = append(h.reply[:0], data...), true
	return abi.OK
}

// ReplyPart sends a part of the result ahead. It waits for credit, within the
// invocation's time.
func (h *host) ReplyPart(data []byte) abi.Status {
	if h.replied || h.over {
		return abi.ErrDone
	}
	if len(data) > travel.MaxDataBytes {
		h.told("reply_part", abi.ErrLimit)
		h.limited = true
		h.lastError = fmt.Sprintf("a part of %d bytes, at most %d: send more parts", len(data), travel.MaxDataBytes)
		return abi.ErrLimit
	}
	rt := h.rt
	h.acted = true
	for try := 0; ; try++ {
		rt.mu.Lock()
		err := rt.core.Part(rt.now(), h.run, data)
		h.over = h.run.Ended()
		origin := h.run.Origin()
		rt.mu.Unlock()
		if !h.full(err) {
			st := h.status("reply_part", err)
			h.count(st, data)
			return st
		}
		if err := h.await(origin, try, false, err); err != nil {
			return h.status("reply_part", err)
		}
	}
}

// full reports whether what gave err found no room, and can be tried again.
func (h *host) full(err error) bool {
	return err != nil && !h.over && errors.Is(err, travel.ErrBackpressure)
}

// await waits before what found no room (err) towards a peer is tried again, for the try-th time, within the
// invocation's time. Others drive the fabric and run branches meanwhile, one more of them if aside is set: what makes
// new branches steps aside for those that there are, but not what is one of them, or ever more would wait.
func (h *host) await(to travel.Peer, try int, aside bool, err error) error {
	rt := h.rt
	h.now = 0
	rt.mu.Lock()
	ep := rt.endpoint(to)
	if aside {
		rt.core.Wait(rt.now(), h.run)
		rt.waits++
	}
	rt.mu.Unlock()
	if h.away {
		rt.after()
	}
	h.release()
	ctx := h.waitContext()
	werr := waitRoom(ctx, try, ep)
	if aside {
		rt.mu.Lock()
		rt.core.Awake(h.run)
		rt.waits--
		rt.mu.Unlock()
	}
	if werr != nil && ctx.Err() != nil { // an endpoint that is gone shows when the call is tried again
		return fmt.Errorf("%w; it waited for room: %v", ctx.Err(), err)
	}
	return nil
}

func (rt *Runtime) endpoint(n travel.Peer) *fabric.Endpoint {
	if n == travel.Self || int(n) >= len(rt.peers) {
		return nil
	}
	return rt.peers[n]
}

// told remembers which call gave which status, and that there is no more to say of it.
func (h *host) told(call string, st abi.Status) abi.Status {
	h.lastCall, h.lastStatus, h.lastError, h.limited, h.crowded = call, st, "", false, false
	return st
}

// status is a call's error as the function sees it; the text goes with the branch's end.
func (h *host) status(call string, err error) abi.Status {
	if err == nil {
		return abi.OK
	}
	h.told(call, abi.ErrArgument)
	h.lastError = err.Error()
	for _, c := range [...]struct {
		err error
		st  abi.Status
	}{
		{travel.ErrBackpressure, abi.ErrBackpressure}, {fabric.ErrBackpressure, abi.ErrBackpressure},
		{travel.ErrEnded, abi.ErrDone}, {travel.ErrDeadline, abi.ErrDeadline}, {context.DeadlineExceeded, abi.ErrDeadline},
		{travel.ErrCanceled, abi.ErrCanceled}, {context.Canceled, abi.ErrCanceled},
		{travel.ErrHopLimit, abi.ErrLimit}, {travel.ErrForkLimit, abi.ErrLimit}, {travel.ErrPartLimit, abi.ErrLimit}, {travel.ErrLimit, abi.ErrLimit},
		{fabric.ErrRights, abi.ErrRights}, {fabric.ErrKey, abi.ErrRights}, {fabric.ErrRevoked, abi.ErrRevoked}, {fabric.ErrIncarnation, abi.ErrRevoked},
		{fabric.ErrRange, abi.ErrArgument}, {fabric.ErrAlign, abi.ErrArgument},
		{travel.ErrPeerLost, abi.ErrPeerLost}, {fabric.ErrPeerLost, abi.ErrPeerLost}, {fabric.ErrClosed, abi.ErrPeerLost},
	} {
		if errors.Is(err, c.err) {
			h.lastStatus = c.st
			return c.st
		}
	}
	return abi.ErrArgument
}

// OverLimit remembers which limit the engine refused a host call for; end tells it if
// the function ends with that.
func (h *host) OverLimit(field string, limit, ceiling uint64) {
	h.told("", abi.ErrLimit)
	h.limited = true
	h.lastError = fmt.Sprintf("%s: the limit is %d", field, limit)
	if ceiling > 0 {
		h.lastError += fmt.Sprintf("; raise limits.%s in the manifest, at most %d", field, ceiling)
	}
}

// peerOf resolves an element, which the function calls by a number. mu is held.
func (h *host) peerOf(element, number uint32) (travel.Peer, abi.Status) {
	b, rt := h.bound, h.rt
	if element >= uint32(len(b.peers)) {
		if b.table == nil && element == 0 {
			return travel.Self, abi.OK
		}
		h.told("", abi.ErrArgument)
		h.lastError = fmt.Sprintf("there is no element %d, only %d of them", number, h.Elements())
		return 0, abi.ErrArgument
	}
	if int(element) == b.self {
		return travel.Self, abi.OK
	}
	inc := b.table.Shards[element].Incarnation
	if n := b.peers[element]; n != travel.Self && rt.about[n].incarnation == inc {
		return n, abi.OK
	}
	n, ok := rt.element(inc)
	if !ok {
		h.told("", abi.ErrPeerLost)
		h.lastError = "no endpoint to element " + b.table.Shards[element].Element
		return 0, abi.ErrPeerLost
	}
	b.peers[element] = n
	return n, abi.OK
}

// maxFunctions is how many further functions one run can name: each keeps a binding.
const maxFunctions = 64

var errFunctions = fmt.Errorf("%w: a run can name %d functions besides itself", travel.ErrLimit, maxFunctions)

// nameAs gives a function, whose image is in the store, a number for forward and fork, until the run ends. mu is held.
func (h *host) nameAs(w travel.What) (function uint32, err error) {
	for i, b := range h.functions {
		if b.What == w {
			return uint32(i) + 1, nil
		}
	}
	if len(h.functions) == maxFunctions {
		return 0, errFunctions
	}
	b, err := h.rt.core.BindFor(h.rt.now(), h.run, w)
	if err != nil {
		return 0, err
	}
	h.functions = append(h.functions, b)
	return uint32(len(h.functions)), nil
}

// Derive names the function that is the run's with these constants.
func (h *host) Derive(constants []byte) (function uint32, st abi.Status) {
	img := h.bound.code.img
	switch n := img.Call().ConstantsBytes; {
	case n == 0:
		h.told("derive", abi.ErrUnsupported)
		h.lastError = "its manifest names no constants"
		return 0, abi.ErrUnsupported
	case len(constants) != n:
		h.told("derive", abi.ErrArgument)
		h.lastError = fmt.Sprintf("%d bytes of constants, the record in its manifest has %d", len(constants), n)
		return 0, abi.ErrArgument
	}
	h.rt.mu.Lock()
	defer h.rt.mu.Unlock()
	w := h.run.Binding().What
	w.Constants = string(constants)
	function, err := h.nameAs(w)
	return function, h.status("derive", err)
}

// Assemble names a function that the run has made: a wasm module, with the manifest of its own function.
func (h *host) Assemble(code []byte) (function uint32, st abi.Status) {
	if len(code) > abi.MaxAssembledBytes {
		h.told("assemble", abi.ErrLimit)
		h.limited = true
		h.lastError = fmt.Sprintf("%d bytes of code, at most %d", len(code), abi.MaxAssembledBytes)
		return 0, abi.ErrLimit
	}
	img, err := h.bound.code.img.Assemble(code)
	if err == nil {
		function, err = h.make(newImage(img, img.Encode(), h.rt.policy()))
	}
	return function, h.status("assemble", err)
}

// make names a function whose image is not in the store yet, or is there by chance.
func (h *host) make(o *object) (function uint32, err error) {
	rt := h.rt
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for i, b := range h.functions {
		if b.Image == o.id && b.Maker != 0 {
			return uint32(i) + 1, nil
		}
	}
	if len(h.functions) == maxFunctions {
		return 0, errFunctions
	}
	o, err = rt.store.add(o)
	if err != nil {
		return 0, err
	}
	now := rt.now()
	rt.core.ObjectArrived(now, o.id)
	b, err := rt.core.Make(now, h.run, o.id)
	if h.over = h.run.Ended(); err != nil {
		return 0, err
	}
	parent := h.bound.code.img.ID()
	if c := h.Constants(); c != nil {
		parent = parent.Derived(c)
	}
	o.code.cameFrom(origin{parent: parent, principal: h.principal, at: now})
	h.functions = append(h.functions, b)
	return uint32(len(h.functions)), nil
}

// Constants are those of the function that runs.
func (h *host) Constants() []byte {
	if c := h.run.Binding().Constants; c != "" { // the bound's, where it keeps scratch, may be another function's by now
		return []byte(c)
	}
	return nil
}

// unname gives up the run's numbers. mu is held.
func (h *host) unname() {
	for _, b := range h.functions {
		h.rt.core.Unbind(b)
	}
	h.functions = h.functions[:0]
}

// function is what a number stands for, nil for the function itself; ok is false, and the call told so, if it stands for nothing.
func (h *host) function(call string, number uint32) (b *travel.Binding, ok bool) {
	switch {
	case number == 0:
		return nil, true
	case number <= uint32(len(h.functions)):
		return h.functions[number-1], true
	}
	h.told(call, abi.ErrArgument)
	h.lastError = fmt.Sprintf("there is no function %d: 0 is the one that runs, and this run has named %d more", number, len(h.functions))
	return nil, false
}

// Forward moves the branch on.
func (h *host) Forward(function, element uint32, payload []byte) abi.Status {
	b, ok := h.function("forward", function)
	switch {
	case h.replied:
		return abi.ErrDone
	case !ok:
		return abi.ErrArgument
	}
	h.acted = true
	for try := 0; ; try++ {
		h.rt.mu.Lock()
		n, st, err := h.forward(h.time(), b, element, payload)
		h.rt.mu.Unlock()
		if !h.full(err) {
			h.count(st, payload)
			return st
		}
		if err := h.await(n, try, false, err); err != nil {
			return h.status("forward", err)
		}
	}
}

// Onward moves the branch on when the run ends (see execute). Of a traced run it is part of the span.
func (h *host) Onward(element uint32, payload []byte) abi.Status {
	if h.endSpan != nil || h.replied || h.over {
		return h.Forward(0, element, payload)
	}
	h.goes, h.to, h.onward = true, element, payload
	return abi.OK
}

// forward moves the branch on, to a peer, as a run of b (nil: the same); err is travel's. mu is held.
func (h *host) forward(now travel.Instant, b *travel.Binding, element uint32, payload []byte) (to travel.Peer, st abi.Status, err error) {
	n, worker, st := h.peer(element)
	if st != abi.OK {
		h.lastCall = "forward"
		return n, st, nil
	}
	if n == travel.Self {
		payload = append([]byte(nil), payload...)
	}
	err = h.rt.core.ForwardAs(now, h.run, n, worker, b, payload)
	h.over = h.run.Ended()
	return n, h.status("forward", err), err
}

// Fork starts another branch. It waits for room, within the invocation's time.
func (h *host) Fork(function, element uint32, payload []byte) abi.Status {
	b, ok := h.function("fork", function)
	if !ok {
		return abi.ErrArgument
	}
	h.acted = true
	for try := 0; ; try++ {
		n, st, err := h.fork(b, element, payload)
		if !h.full(err) {
			h.count(st, payload)
			return st
		}
		if err := h.await(n, try, true, err); err != nil {
			return h.status("fork", err)
		}
	}
}

func (h *host) fork(b *travel.Binding, element uint32, payload []byte) (to travel.Peer, st abi.Status, err error) {
	rt := h.rt
	rt.mu.Lock()
	defer rt.mu.Unlock()
	n, worker, st := h.peer(element)
	if st != abi.OK {
		h.lastCall = "fork"
		return n, st, nil
	}
	if n == travel.Self {
		payload = append([]byte(nil), payload...)
	}
	_, err = rt.core.ForkAs(h.time(), h.run, n, worker, b, payload)
	h.over = h.run.Ended()
	return n, h.status("fork", err), err
}

// count counts what was sent.
func (h *host) count(st abi.Status, data []byte) {
	if st == abi.OK {
		h.sent += uint64(len(data))
	}
}

// waitContext bounds a call that waits; Stop ends it. mu is not held.
func (h *host) waitContext() context.Context {
	h.rt.mu.Lock()
	defer h.rt.mu.Unlock()
	if h.ctx == nil {
		left := time.Duration(h.deadline - h.rt.now())
		h.ctx, h.cancel = context.WithTimeout(context.Background(), max(left, 0))
		if h.stopped.Load() {
			h.cancel()
		}
	}
	return h.ctx
}

// Log takes a line of the function's. The last one is kept, for with it functions say why they fail.
func (h *host) Log(text []byte) {
	h.said = append(h.said[:0], text[:min(len(text), saidBytes+1)]...)
	name := h.bound.code.img.Name()
	if out := h.rt.cfg.Output; out != nil {
		out(h.rt.el.Name(), name, string(text))
		return
	}
	h.rt.log.Info("function says", "function", name, "origin", h.bound.principal, "text", string(text))
}

// Random is 64 bits that cannot be foreseen.
func (h *host) Random() uint64 { return rand.Uint64() }

// NowNs is the wall clock.
func (h *host) NowNs() uint64 { return uint64(time.Now().UnixNano()) }

// RemainingNs is the time left.
func (h *host) RemainingNs() uint64 { return uint64(max(h.deadline-h.rt.now(), 0)) }

var (
	_ abi.Host        = (*host)(nil)
	_ abi.LimitTeller = (*host)(nil)
	_ abi.RangeTeller = (*host)(nil)
)
