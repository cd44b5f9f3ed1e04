package sim_test

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	maxLanes    = 24      // of one life
	staticBytes = 330_000 // of the segment that nobody writes
	wordCount   = 40      // counters that everybody adds to
	addsPerWord = 62
	staticID    = 99 // of its pattern
)

// cellSizes are those of each lane's cells; the first is for atomics, the last takes more
// fragments than an endpoint sends in a round.
var cellSizes = [...]int{8, 24, 300, 4096, 5000, 66_000, 290_000}

func laneBytes() int {
	n := 0
	for _, c := range cellSizes {
		n += (c + 127) &^ 63 // a gap that nobody writes behind each
	}
	return (n + 63) &^ 63
}

// memory is what a life lends.
type memory struct {
	static, words, seg *fabric.Segment // seg has the lanes, then the guarded ranges
	staticKey          fabric.Key
	wordsKey           fabric.Key
	lanes              int // in use
	adds               [wordCount]adds
	grants             []*grant
}

// adds is what is known of one counter: each add has a bit of its own, so that
// one that happens twice shows.
type adds struct {
	next        int
	done, maybe uint64
}

func (l *life) lend() (err error) {
	if l.static, err = l.el.NewSegment(staticBytes, fabric.Sealed); err != nil {
		return err
	}
	fillPattern(l.static.Bytes(), staticID, l.h.Index)
	if l.staticKey, err = l.static.Key(fabric.RightRead); err != nil {
		return err
	}
	if l.words, err = l.el.NewSegment(wordCount*8, fabric.Writable); err != nil {
		return err
	}
	if l.wordsKey, err = l.words.Key(fabric.RightsAll); err != nil {
		return err
	}
	l.seg, err = l.el.NewSegment(uint64(maxLanes*laneBytes()+maxGrants*grantBytes), fabric.Writable)
	return err
}

// laneOf is the memory that a side's peer writes.
func (l *life) laneOf(lane int) []byte {
	return l.seg.Bytes()[lane*laneBytes():][:laneBytes()]
}

// cell is a range of the peer's memory that one side alone writes.
type cell struct {
	id, index int
	offset    int
	size      int
	// what it may hold: each byte is one of these versions'. Version 0 is zeros.
	may  []int
	next int // version
	busy bool
	word uint64 // of the atomics' cell
	lost bool   // the word is not known any more
}

// open gives the side its lane, and imports what the peer lends.
func (s *side) open() {
	p := s.peer()
	s.lane = p.l.lanes
	p.l.lanes++
	base, at := s.lane*laneBytes(), 0
	for i, n := range cellSizes {
		s.cells = append(s.cells, &cell{id: s.c.id*16 + s.i*8 + i, index: i, offset: at, size: n, may: []int{0}, next: 1})
		at += (n + 127) &^ 63
	}
	key, err := p.l.seg.KeyRange(uint64(base), uint64(laneBytes()), fabric.RightsAll)
	if err != nil {
		s.t.fail("key: %v", err)
	}
	s.call(func(ctx context.Context) {
		var err [3]error
		s.mem, err[0] = s.ep.Import(ctx, key)
		s.static, err[1] = s.ep.Import(ctx, p.l.staticKey)
		s.words, err[2] = s.ep.Import(ctx, p.l.wordsKey)
		for _, e := range err {
			if e != nil && s.live() && !errors.Is(e, fabric.ErrPeerLost) && !errors.Is(e, context.DeadlineExceeded) {
				s.t.fail("%v: Import: %v", s, e)
			}
		}
	})
}

// bytesOf is a cell's memory at its owner, while that lives.
func (s *side) bytesOf(c *cell) []byte {
	return s.peer().l.laneOf(s.lane)[c.offset:][:c.size]
}

// matches reports whether b is what the cell may hold.
func (c *cell) matches(b []byte, may []int) bool {
	for _, v := range may {
		if v != 0 && isPattern(b, c.id, v, 0) || v == 0 && bytes.Equal(b, zeros[:len(b)]) {
			return true
		}
	}
	if len(may) == 1 {
		return false
	}
	rows := make([][]byte, len(may))
	for i, v := range may {
		if v != 0 {
			rows[i] = patternOf(c.id, v)
		}
	}
next:
	for i, x := range b {
		for _, row := range rows {
			if row == nil && x == 0 || row != nil && row[i] == x {
				continue next
			}
		}
		return false
	}
	return true
}

// freeze remembers what the peer wrote here, once it is lost: it writes no more.
func (s *side) freeze() {
	if p := s.peer(); p != nil && !s.l.dead {
		s.frozen = crc32.ChecksumIEEE(s.l.laneOf(p.lane))
	}
}

// op is a started operation.
type op struct {
	s     *side
	what  string
	at    time.Duration
	get   bool
	op    fabric.Op
	done  <-chan struct{} // of some
	ended bool
	value uint64
	err   error
	then  func(*op)
}

// start keeps an operation until it ends.
func (s *side) start(what string, o fabric.Op, then func(*op)) *op {
	x := &op{s: s, what: what, at: time.Duration(s.t.w.Now()), op: o, then: then, get: what == "get"}
	if s.t.w.Rand.IntN(4) == 0 {
		x.done = o.Done()
	}
	s.t.ops = append(s.t.ops, x)
	return x
}

// sweep ends the operations that have ended.
func (t *trial) sweep() {
	kept := t.ops[:0]
	list := t.ops
	t.ops = nil
	for _, o := range list {
		if o.ended || o.op.Poll() {
			o.finish()
		} else {
			kept = append(kept, o)
		}
	}
	t.ops = append(kept, t.ops...)
}

func (o *op) finish() {
	t := o.s.t
	if o.ended {
		return
	}
	if o.done != nil {
		select {
		case <-o.done:
		default:
			t.fail("%v: a %s has ended, but Done is open", o.s, o.what)
		}
	}
	o.ended = true
	o.value, o.err = o.op.Value(context.Background())
	t.ended++
	if o.err == nil {
		t.good++
	}
	t.note(uint64(len(o.what)), o.value)
	if o.err != nil && !o.unsure() && !errors.Is(o.err, fabric.ErrBackpressure) && !isRefusal(o.err) {
		t.fail("%v: %s ended with %v", o.s, o.what, o.err)
	}
	if o.unsure() && o.s.lost == nil {
		o.s.doomed = true
	}
	if o.then != nil {
		o.then(o)
	}
}

// unsure reports whether the operation may have happened or not.
func (o *op) unsure() bool {
	return errors.Is(o.err, fabric.ErrPeerLost) || errors.Is(o.err, fabric.ErrClosed)
}

func isRefusal(err error) bool {
	for _, e := range []error{fabric.ErrRevoked, fabric.ErrRights, fabric.ErrRange, fabric.ErrKey} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// quietBuffer belongs to its owner again: nobody else may write it.
type quietBuffer struct {
	b    []byte
	what string
}

const canary = 0xee

func (t *trial) quiet(b []byte, what string) {
	copy(b, canaries)
	t.bufs = append(t.bufs, &quietBuffer{b, what})
}

var (
	canaries = bytes.Repeat([]byte{canary}, staticBytes)
	zeros    = make([]byte, staticBytes)
)

func (t *trial) checkQuiet() {
	for _, q := range t.bufs {
		if !allCanary(q.b) {
			t.fail("the buffer of %s was written after it was given back", q.what)
		}
	}
}

func allCanary(b []byte) bool { return bytes.Equal(b, canaries[:len(b)]) }

// chain is what is started on one cell, in order, with fences between.
type chain struct {
	s     *side
	c     *cell
	steps []*op
	ver   []int // of each Put
	bufs  [][]byte
	dst   []byte // of the Get at the end
	due   int
}

func (s *side) freeCell() *cell {
	c := s.cells[1+s.t.w.Rand.IntN(len(s.cells)-1)]
	if c.busy || s.mem == nil || !s.live() {
		return nil
	}
	c.busy = true
	return c
}

// put starts a Put of the cell's next version; false if there was no room.
func (ch *chain) put() bool {
	v, b := ch.c.next, make([]byte, ch.c.size)
	ch.c.next++
	fillPattern(b, ch.c.id, v)
	ch.due++
	o := ch.s.start("put", ch.s.mem.StartPut(b, uint64(ch.c.offset)), ch.stepped)
	ch.steps, ch.ver, ch.bufs = append(ch.steps, o), append(ch.ver, v), append(ch.bufs, b)
	return !(o.op.Poll() && ch.s.refused(o))
}

// refused looks at an operation that ended at once.
func (s *side) refused(o *op) bool {
	o.finish()
	return o.err != nil
}

func (ch *chain) get() {
	ch.dst = make([]byte, ch.c.size)
	ch.due++
	ch.steps = append(ch.steps, ch.s.start("get", ch.s.mem.StartGet(ch.dst, uint64(ch.c.offset)), ch.stepped))
}

// stepped hears of each step's end; with the last one the whole is judged.
func (ch *chain) stepped(*op) {
	if ch.due--; ch.due > 0 {
		return
	}
	ch.judge()
}

func (ch *chain) judge() {
	c, t := ch.c, ch.s.t
	for i, o := range ch.steps {
		if i < len(ch.ver) {
			switch {
			case o.err == nil:
				c.may = []int{ch.ver[i]}
			case o.unsure():
				c.may = append(slices.Clone(c.may), ch.ver[i])
			}
			t.quiet(ch.bufs[i], "a put")
			continue
		}
		if o.err == nil && !c.matches(ch.dst, c.may) {
			t.fail("%v: cell %d of %d bytes: Get does not give version %v", ch.s, c.index, c.size, c.may)
		}
		t.quiet(ch.dst, "a get")
	}
	c.busy = false
}

// actChain puts, fences, puts, fences and gets one cell, without waiting.
func actChain(s *side) {
	c := s.freeCell()
	if c == nil {
		return
	}
	r := s.t.w.Rand
	ch := &chain{s: s, c: c}
	ch.due++ // until all is started
	s.ep.Fence()
	for range r.IntN(3) {
		if !ch.put() {
			break
		}
		s.ep.Fence()
	}
	if r.IntN(2) == 0 || len(ch.steps) == 0 {
		ch.get()
	}
	ch.stepped(nil)
}

// actSignal puts, fences and says so in a message: whoever gets it finds the data.
func actSignal(s *side) {
	c := s.freeCell()
	if c == nil {
		return
	}
	ch := &chain{s: s, c: c}
	ch.due += 2 // until all is started, and until the message has been handled
	s.ep.Fence()
	if !ch.put() {
		ch.due--
		ch.stepped(nil)
		return
	}
	s.ep.Fence()
	v, number := ch.ver[0], s.sent
	sent := s.post(wantLook, c.index, v)
	ch.stepped(nil)
	if !sent {
		ch.stepped(nil)
		return
	}
	var wait func()
	wait = func() { // for the message to be handled
		if s.peer().got > number || s.lost != nil {
			ch.stepped(nil)
			return
		}
		s.l.h.Do(200*time.Microsecond, wait)
	}
	wait()
}

// look is at the owner: the message behind the fence has come.
func (s *side) look(cell, version int, number uint64) {
	p := s.peer()
	c := p.cells[cell]
	if !isPattern(s.l.laneOf(p.lane)[c.offset:][:c.size], c.id, version, 0) {
		s.t.fail("%v: message %d came before the Put of version %d ahead of its fence", s, number, version)
	}
}

// actStatic gets some of what never changes, several at once.
func actStatic(s *side) {
	if s.static == nil {
		return
	}
	r := s.t.w.Rand
	for range 1 + r.IntN(3) {
		n := 1 + r.IntN(300)
		switch r.IntN(4) {
		case 0:
			n = 1 + r.IntN(staticBytes)
		case 1:
			n = []int{4, 8, 4096, 4097, 65536, 65537}[r.IntN(6)]
		}
		at := r.IntN(staticBytes - n + 1)
		dst := make([]byte, n)
		s.start("get", s.static.StartGet(dst, uint64(at)), func(o *op) {
			if o.err == nil && !isPattern(dst, staticID, s.peer().l.h.Index, at) {
				s.t.fail("%v: Get of [%d, +%d) gives other bytes", s, at, n)
			}
			s.t.quiet(dst, "a get")
		})
	}
}

// actForget gives operations up while they are under way.
func actForget(s *side) {
	r := s.t.w.Rand
	wait, put := s.t.w.Between(0, 2*time.Millisecond), r.IntN(2) == 0
	s.call(func(context.Context) {
		if put {
			s.forgetPut(wait)
			return
		}
		if s.static == nil || !s.live() {
			return
		}
		dst := make([]byte, 1+r.IntN(staticBytes))
		o := s.static.StartGet(dst, 0)
		s.l.h.Sleep(wait)
		o.Forget()
		s.t.quiet(dst, "a forgotten get")
	})
}

func (s *side) forgetPut(wait time.Duration) {
	c := s.freeCell()
	if c == nil {
		return
	}
	s.ep.Fence()
	src := make([]byte, c.size)
	fillPattern(src, c.id, c.next)
	o := s.mem.StartPut(src, uint64(c.offset))
	c.may = append(slices.Clone(c.may), c.next)
	c.next++
	s.l.h.Sleep(wait)
	o.Forget()
	s.t.quiet(src, "a forgotten put")
	c.busy = false
}

// actExpire waits for a Get or Put for a moment only.
func actExpire(s *side) {
	limit, put := s.t.w.Between(0, 2*time.Millisecond), s.t.w.Rand.IntN(2) == 0
	s.call(func(context.Context) {
		ctx, cancel := s.l.h.Timeout(max(limit, 1))
		defer cancel()
		if !s.live() || s.static == nil {
			return
		}
		if put {
			s.expirePut(ctx)
			return
		}
		dst := make([]byte, 1+s.t.w.Rand.IntN(staticBytes))
		err := s.static.Get(ctx, dst, 0)
		if err == nil && !isPattern(dst, staticID, s.peer().l.h.Index, 0) {
			s.t.fail("%v: Get gives other bytes", s)
		}
		s.checkExpired("get", err)
		s.t.quiet(dst, "a get that expired")
	})
}

func (s *side) expirePut(ctx context.Context) {
	c := s.freeCell()
	if c == nil {
		return
	}
	s.ep.Fence()
	v, src := c.next, make([]byte, c.size)
	fillPattern(src, c.id, v)
	c.next++
	err := s.mem.Put(ctx, src, uint64(c.offset))
	s.checkExpired("put", err)
	if err == nil {
		c.may = []int{v}
	} else {
		c.may = append(slices.Clone(c.may), v)
	}
	s.t.quiet(src, "a put that expired")
	c.busy = false
}

func (s *side) checkExpired(what string, err error) {
	if err != nil && s.live() && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, fabric.ErrPeerLost) && !errors.Is(err, fabric.ErrBackpressure) {
		s.t.fail("%v: %s: %v", s, what, err)
	}
}

// actAdd adds to a counter that everybody adds to.
func actAdd(s *side) {
	if s.words == nil || !s.live() {
		return
	}
	for range 1 + s.t.w.Rand.IntN(4) {
		i := s.t.w.Rand.IntN(wordCount)
		a := &s.peer().l.adds[i]
		if a.next == addsPerWord {
			continue
		}
		bit := uint64(1) << a.next
		a.next++
		before := a.done
		a.maybe |= bit
		s.start("add", s.words.StartAtomic(fabric.FetchAdd(bit), 8, uint64(i*8)), func(o *op) {
			switch {
			case o.err == nil:
				a.done |= bit
				if o.value&bit != 0 || o.value&before != before || o.value&^a.maybe != 0 {
					s.t.fail("%v: counter %d had %x when %x was added; %x were there", s, i, o.value, bit, before)
				}
			case !o.unsure():
				a.maybe &^= bit
			}
		})
	}
}

// actWord does one random atomic on the side's own word.
func actWord(s *side) {
	c := s.cells[0]
	if s.mem == nil || c.busy || c.lost || !s.live() {
		return
	}
	r := s.t.w.Rand
	kind, operand, compare := fabric.AtomicKind(1+r.IntN(6)), r.Uint64(), c.word
	if r.IntN(2) == 0 {
		compare = r.Uint64()
	}
	next := map[fabric.AtomicKind]uint64{fabric.KindFetchAdd: c.word + operand, fabric.KindSwap: operand, fabric.KindCompareSwap: c.word,
		fabric.KindFetchAnd: c.word & operand, fabric.KindFetchOr: c.word | operand, fabric.KindFetchXor: c.word ^ operand}[kind]
	if kind == fabric.KindCompareSwap && compare == c.word {
		next = operand
	}
	c.busy = true
	s.start("atomic", s.mem.StartAtomic(fabric.AtomicOp{Kind: kind, Operand: operand, Compare: compare}, 8, uint64(c.offset)), func(o *op) {
		c.busy = false
		switch {
		case o.err == nil && o.value != c.word:
			s.t.fail("%v: atomic %d found %x, %x was there", s, kind, o.value, c.word)
		case o.err == nil:
			c.word = next
		case o.unsure():
			c.lost = true
		}
	})
}
