package inject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"unicode/utf8"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// bound is a binding made ready for one principal at this element: a program
// with its windows, and the table with its peers. It is kept in
// travel.Binding.Data, behind boundSet.
type bound struct {
	principal string
	binding   *travel.Binding
	code      *code
	form      image.Form     // that it runs in
	entry     int            // of the image
	program   abi.Program    // of that entry, which it is bound to
	soon      bool           // its engine makes better code than this one
	warm      bool           // it has run, under Runtime.mu
	table     *cluster.Table // nil: none
	self      int            // this element's index in the table, -1
	run       abi.Bound
	keys      []fabric.Key // of the windows; they must hold for each run …
	ends      uint64       // … and did when so many of this element's had ended
	segments  []*fabric.Segment
	windows   []windowAccess
	peers     []travel.Peer // by element index, as last resolved; 0: not yet
	remotes   map[remoteWindow]*fabric.Remote
	alone     atomic.Uint64 // Runtime.came + 1 when no other element was near; 0: not known
	spare     abi.Instance  // kept at hand, under Runtime.mu
	listed    bool          // in Runtime.spares, also under it
	runs      int           // running now, under Runtime.mu
	scratch   uint64        // that a run asked for last, also under it
	stale     bool          // to be closed when the last run ends
}

type remoteWindow struct{ element, window uint32 }

// windowAccess is a local window for the host calls get, put and atomic.
type windowAccess struct {
	mem    []byte
	rights fabric.Rights // by this element's record
}

// boundSet is a binding's bounds, one per principal. Few principals use one
// function at once; the last one is looked at first.
type boundSet struct {
	last *bound
	all  []*bound
}

// maxPrincipals bounds the principals one binding is kept ready for.
const maxPrincipals = 64

func (s *boundSet) find(principal string) *bound {
	if s.last != nil && s.last.principal == principal {
		return s.last
	}
	for _, b := range s.all {
		if b.principal == principal {
			s.last = b
			return b
		}
	}
	return nil
}

// lookup finds a run's bound, if it is ready and its keys still hold. mu is held.
func (rt *Runtime) lookup(run *travel.Run, principal string) *bound {
	set, _ := run.Binding().Data.(*boundSet)
	if set == nil {
		return nil
	}
	b := set.find(principal)
	if b == nil {
		return nil
	}
	if !rt.holds(b) {
		rt.forget(set, b)
		return nil
	}
	b.runs++
	return b
}

// holds reports whether the keys of a bound's windows still hold.
func (rt *Runtime) holds(b *bound) bool {
	ends := rt.layer.KeyEnds()
	if ends == b.ends {
		return true
	}
	for i := range b.keys {
		if !rt.el.Holds(b.keys[i]) {
			return false
		}
	}
	b.ends = ends
	return true
}

// forget takes a bound out of its set; it is closed once nothing runs on it. mu is held.
func (rt *Runtime) forget(set *boundSet, b *bound) {
	for i, x := range set.all {
		if x == b {
			set.all = append(set.all[:i], set.all[i+1:]...)
			break
		}
	}
	if set.last == b {
		set.last = nil
	}
	b.stale = true
	rt.release = rt.unlist(b, rt.release)
	if b.runs == 0 {
		rt.sweep = append(rt.sweep, b)
	}
}

// retire is called when a binding lets go of its objects.
func (s *boundSet) retire(rt *Runtime) {
	delete(rt.sets, s)
	for len(s.all) > 0 {
		rt.forget(s, s.all[0])
	}
}

func (b *bound) close() {
	if b.run != nil {
		b.run.Close()
	}
	for _, s := range b.segments {
		s.Unpin()
	}
}

// principal is whose authority a run has: its origin's.
func (rt *Runtime) principal(run *travel.Run) string {
	if n := run.Origin(); int(n) < len(rt.about) {
		return rt.about[n].principal
	}
	return ""
}

// execute runs one branch to its end on the caller's goroutine, and reports
// whether there is more to do (see after).
func (rt *Runtime) execute(h *host) (more bool) {
	status, err := rt.runBranch(h)
	if err != nil {
		if more, back := rt.giveBack(h, err); back {
			return more
		}
	}
	return rt.conclude(h, status, err)
}

// conclude ends a run whose function has returned. It reports whether there is more to do.
func (rt *Runtime) conclude(h *host, status abi.Status, err error) (more bool) {
	h.rests()
	end := h.end(status, err)
	if h.goes && end.Code == travel.CodeOK {
		if st := h.Forward(0, h.to, h.onward); st != abi.OK {
			end = h.end(st, nil)
		}
	}
	if h.endSpan != nil {
		h.endSpan(spanError(&end))
	}
	if h.instance != nil && h.held == nil && (err != nil || len(h.payload) > keptPayloadBytes) {
		if err != nil { // its memory, of which there can be much from earlier runs, goes back to the system
			h.release()
		}
		h.instance.Release()
		h.instance = nil
	}
	now := h.now
	if now == 0 {
		now = rt.now()
	}
	rt.mu.Lock()
	rt.finish(h, now, end) // first: the answer leaves with it
	if b := h.bound; b != nil {
		if h.instance != nil && h.held == nil {
			rt.keep(b, h.instance)
		}
		b.runs--
		rt.closeStale(b)
	}
	rt.freeHost(h)
	rt.core.RoomFreed() // the instance may be gone
	rt.soon(now)
	if more = rt.pending(); rt.closed {
		rt.drop()
	}
	rt.mu.Unlock()
	return more
}

// finish ends a run. mu is held.
func (rt *Runtime) finish(h *host, now travel.Instant, end travel.End) {
	rt.note(h, now, end.Code)
	rt.core.Finish(now, h.run, end)
}

// closeStale has a stale bound closed once nothing runs on it. mu is held.
func (rt *Runtime) closeStale(b *bound) {
	if b.runs == 0 && b.stale {
		rt.sweep = append(rt.sweep, b)
	}
}

// keptPayloadBytes is the longest payload whose instance is kept at hand as it
// is; after a longer one the engine gives its memory back.
const keptPayloadBytes = 64 << 10

// maxSpares bounds the instances kept at hand, which the engine cannot evict.
const maxSpares = 32

// keep puts an instance at hand for the bound's next run, so that the engine's
// pool is not asked for each. mu is held.
func (rt *Runtime) keep(b *bound, in abi.Instance) {
	if b.spare != nil || b.stale || rt.core.AwaitsRoom(b.principal) {
		rt.release = append(rt.release, in)
		return
	}
	b.spare = in
	if b.listed {
		return
	}
	b.listed = true
	if rt.spares = append(rt.spares, b); len(rt.spares) > maxSpares {
		rt.release = rt.unlist(rt.spares[0], rt.release)
	}
}

// takeSpare takes the bound's kept instance, nil if there is none. mu is held.
func (rt *Runtime) takeSpare(b *bound) abi.Instance {
	in := b.spare
	b.spare = nil
	return in
}

func (rt *Runtime) runBranch(h *host) (abi.Status, error) {
	if h.bound == nil {
		return 0, errUnready
	}
	if err := h.checkWorkers(); err != nil {
		return 0, err
	}
	if h.held != nil {
		if !rt.holds(h.bound) {
			return 0, refuse(travel.CodeRefused, "a key to a window of %s was revoked while this invocation kept scratch here", h.bound.table.Name)
		}
		if why := rt.withdrawn(h.bound); why != "" {
			return 0, refuse(travel.CodeRefused, "%s cannot go on on %s, where it keeps scratch: %s", h.bound.code.img.Name(), rt.el.Name(), why)
		}
		h.instance = h.held.instance
	} else if h.instance == nil {
		in, err := rt.acquire(h)
		if err != nil {
			return 0, err
		}
		h.instance = in
	}
	if rt.cfg.Tracer != nil {
		h.startSpan()
	}
	st, err := h.instance.Run(h.payload, rt.limits, h)
	if in, ok := h.instance.(abi.Timed); ok {
		took, typical := in.Took()
		h.took, h.untypical = took, !typical
	}
	return st, err
}

// openWindows finds the segments behind the table's keys for this element.
func (rt *Runtime) openWindows(b *bound) (windows []abi.Window, err error) {
	call := b.code.img.Call()
	if b.table != nil {
		b.peers = make([]travel.Peer, len(b.table.Shards))
		b.self = b.table.IndexOf(rt.el.Incarnation())
	}
	if b.self >= 0 {
		file := b.table.File()
		for i, w := range b.table.Shards[b.self].Windows {
			if w.Size == 0 || i == file || file == cluster.FixedFile && i == cluster.FixedDirectory && w.Key.IsZero() {
				windows = append(windows, abi.Window{FD: -1})
				b.windows = append(b.windows, windowAccess{})
				continue
			}
			maps := call.Maps(i) // else get and put reach it, but it is not in the function's memory
			aw, err := rt.openWindow(b, w, maps, i < len(call.Windows) && call.Windows[i].Writable)
			if err != nil {
				return nil, refuse(travel.CodeRefused, "window %d of %s: %v", i, b.table.Name, err)
			}
			aw.Whole = b.table.Kind == cluster.Columns
			windows = append(windows, aw)
		}
	}
	return windows, nil
}

func (rt *Runtime) openWindow(b *bound, w cluster.Window, maps, writable bool) (abi.Window, error) {
	var need fabric.Rights
	if maps {
		need = fabric.RightRead
	}
	if writable {
		need |= fabric.RightWrite
	}
	r, err := rt.el.OwnRange(w.Key, need)
	if err != nil {
		return abi.Window{}, err
	}
	seg := r.Segment
	b.segments = append(b.segments, seg)
	b.keys = append(b.keys, w.Key)
	// What counts is the record of the key: its holder can write any size into a table.
	if w.Size > r.Size {
		return abi.Window{}, fmt.Errorf("%w: %d bytes, the key covers %d", fabric.ErrRange, w.Size, r.Size)
	}
	access := windowAccess{mem: seg.Bytes()[r.Offset : r.Offset+w.Size], rights: r.Rights}
	if !maps {
		b.windows = append(b.windows, access)
		return abi.Window{FD: -1}, nil
	}
	if whole := (w.Size + fabric.SegmentAlign - 1) &^ (fabric.SegmentAlign - 1); whole > r.Size && !seg.Padded(r.Offset, r.Size) || r.Offset+whole > seg.Mappable() {
		return abi.Window{}, fmt.Errorf("%w: a function sees whole pages of %d bytes, and the key ends inside one, at %d of its segment's %d bytes; narrow to whole pages",
			fabric.ErrRange, fabric.SegmentAlign, r.Offset+r.Size, seg.Size())
	}
	fd, start := seg.FD()
	if fd < 0 {
		return abi.Window{}, errors.New("its memory has no descriptor to be mapped by")
	}
	b.windows = append(b.windows, access)
	return abi.Window{FD: fd, Offset: start + int64(r.Offset), Size: w.Size, Writable: writable}, nil
}

// refusal is an error with the code that the origin gets.
type refusal struct {
	code travel.Code
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(code travel.Code, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

var errStopped = errors.New("it was stopped: canceled, or its deadline is over")

// end turns the engine's word into the branch's end.
func (h *host) end(status abi.Status, err error) travel.End {
	var end travel.End
	switch {
	case err != nil:
		end = failure(err)
	case status == abi.OK:
		return travel.End{Code: travel.CodeOK, Result: h.reply, HasResult: h.replied}
	default:
		end = h.gaveUp(status)
	}
	if s := quoted(h.said); s != "" {
		end.Text += "; it said " + s
	}
	return end
}

// gaveUp is the end of a branch whose function returned a status other than OK.
func (h *host) gaveUp(status abi.Status) travel.End {
	end := travel.End{Code: travel.CodeFunction, Status: int32(status), Text: status.String()}
	passedOn := status == h.lastStatus // it was told so by a host call
	if h.lastError != "" && (passedOn || status > 0) {
		end.Text = h.lastError
	}
	switch {
	case !passedOn:
		return end
	case status == abi.ErrPeerLost:
		end.Code, end.Status = travel.CodePeerLost, 0
	case status == abi.ErrLimit && h.limited:
		end.Code, end.Status = travel.CodeLimit, 0
	case status == abi.ErrLimit && h.crowded:
		end.Code, end.Status = travel.CodeBackpressure, 0
	case status == abi.ErrUnsupported && h.dealt:
		end.Text = dealtText(h.bound.table)
		return end
	}
	if h.lastCall != "" {
		end.Text = h.lastCall + ": " + end.Text
	}
	return end
}

// quoted is what a function logged, made safe to show on one line and cut to saidBytes; "" if it is nothing.
func quoted(said []byte) string {
	more := ""
	if n := saidBytes; len(said) > n {
		for n > saidBytes-utf8.UTFMax && !utf8.RuneStart(said[n]) {
			n--
		}
		said, more = said[:n], "…"
	}
	if said = bytes.Trim(said, "\x00\t\r\n "); len(said) == 0 {
		return ""
	}
	return strconv.Quote(string(said)) + more
}

// dealtText says why a function that needs ranges of rows cannot run on a table.
func dealtText(t *cluster.Table) string {
	return fmt.Sprintf("the rows of %s are scattered over the elements (%v), not in ranges: load %s again with --shard block", t.Name, t.Sharding.Kind, t.Name)
}

// failure is the end of a branch that did not run to its own.
func failure(err error) travel.End {
	var r *refusal
	switch {
	case errors.As(err, &r):
		return travel.End{Code: r.code, Text: r.text}
	case errors.Is(err, errStopped), errors.Is(err, context.Canceled):
		return travel.End{Code: travel.CodeCanceled, Text: err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return travel.End{Code: travel.CodeDeadline, Text: err.Error()}
	}
	code := travel.CodeTrap
	switch {
	case errors.Is(err, abi.ErrOverLimit):
		code = travel.CodeLimit
	case errors.Is(err, abi.ErrEngineBusy):
		code = travel.CodeBackpressure
	}
	return travel.End{Code: code, Text: err.Error()}
}
