package fabric

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestTooManyOperations: a peer that has more operations under way than it was told it may is cut off, and
// leaves nothing pinned; one that has as many as it may is served.
func TestTooManyOperations(t *testing.T) {
	const most = 8
	for _, c := range []struct {
		name string
		id   FrameID
		may  int // of Gets twice as many: their answers may be on their way still when the peer has them
	}{{"Puts", framePut, most}, {"Gets", frameGet, 2 * most}} {
		t.Run(c.name, func(t *testing.T) {
			e := loneElement(t, 1, Limits{OpsPerEndpoint: most})
			seg, err := e.NewSegment(1<<20, Writable)
			if err != nil {
				t.Fatal(err)
			}
			key, err := seg.Key(RightsAll)
			if err != nil {
				t.Fatal(err)
			}
			hostile, link := attach(t, e, 2)
			honest, _ := attach(t, e, 3)
			link.room = 0 // it reads none of its answers
			ask := func(ep *Endpoint, op int) error {
				return ep.receiver().Frame(c.id, appendAccess(nil, uint32(op), key.ref(), 0, inlineGetBytes+1))
			}
			for i := range c.may {
				if err := errors.Join(ask(hostile, i), ask(honest, i)); err != nil {
					t.Fatalf("%d of them: %v", i+1, err)
				}
				e.Progress()
				if c.id == framePut { // the honest one goes on with each before the next
					if err := honest.receiver().Frame(framePutData, append(bulkHead(nil, uint32(i), bulkLast, 0), make([]byte, inlineGetBytes+1)...)); err != nil {
						t.Fatal(err)
					}
				}
			}
			err = ask(hostile, c.may)
			if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "more than 8") {
				t.Fatalf("one more: %v", err)
			}
			hostile.receiver().Lost(err) // which is what a transport does about that
			if err := errors.Join(ask(honest, c.may), honest.Err()); err != nil {
				t.Errorf("an honest peer: %v", err)
			}
			if !link.closed || len(e.Endpoints()) != 1 || underWay(hostile) {
				t.Error("the hostile peer has something under way still")
			}
			honest.Close()
			seg.Close()
			if n := e.LentBytes(); n != 0 {
				t.Errorf("%d bytes stay pinned", n)
			}
		})
	}
	t.Run("one Put twice", func(t *testing.T) {
		e := loneElement(t, 1, Limits{})
		ep, _ := attach(t, e, 2)
		put := appendAccess(nil, 7, keyRef{}, 0, 5000)
		if err := ep.receiver().Frame(framePut, put); err != nil {
			t.Fatal(err)
		}
		if err := ep.receiver().Frame(framePut, put); !errors.Is(err, ErrProtocol) {
			t.Errorf("announced again: %v", err)
		}
	})
}

// register is a Backing that loads and stores do not reach.
type register struct {
	bytes  []byte
	err    error
	empty  int // accesses of no bytes
	closed int
}

func (r *register) Bytes() []byte    { return nil }
func (r *register) FD() (int, int64) { return -1, 0 }
func (r *register) Close() error     { r.closed++; return nil }

func (r *register) ReadAt(p []byte, off uint64) error {
	if len(p) == 0 {
		r.empty++
	}
	copy(p, r.bytes[off:])
	return r.err
}

func (r *register) WriteAt(p []byte, off uint64) error {
	if len(p) == 0 {
		r.empty++
	}
	copy(r.bytes[off:], p)
	return r.err
}

// registered is a segment on a register, and a key to it.
func registered(t *testing.T, e *Element, size uint64) (*Segment, *register, Key) {
	t.Helper()
	dev := &register{bytes: make([]byte, size)}
	seg, err := e.NewSegmentOn(dev, size, Writable)
	if err != nil {
		t.Fatal(err)
	}
	key, err := seg.Key(RightRead | RightWrite)
	if err != nil {
		t.Fatal(err)
	}
	return seg, dev, key
}

// TestBackingLetGo: what a link is about to put down for a segment without bytes keeps that only as long as the endpoint lives, also if
// it ends between the fragment's check and its landing.
func TestBackingLetGo(t *testing.T) {
	const size, n = 1 << 17, 1 << 16
	head := bulkHead(nil, 1, 0, 0)
	begin := func(ep *Endpoint, key Key) {
		if err := ep.receiver().Frame(framePut, appendAccess(nil, 1, key.ref(), 0, size)); err != nil {
			t.Fatal(err)
		}
	}
	for name, arrive := range map[string]func(ep *Endpoint){
		"before": func(ep *Endpoint) { ep.Close(); ep.receiver().Place(framePutData, head, n) },
		"between": func(ep *Endpoint) {
			to, err := ep.incomingFragment(head, n, false)
			if ep.Close(); err != nil || len(ep.in.land(to, n)) != 0 {
				t.Errorf("between: there is a place for what came for an endpoint that has ended: %v", err)
			}
		},
		"after": func(ep *Endpoint) {
			if dst, err := ep.receiver().Place(framePutData, head, n); err != nil || len(dst) != n {
				t.Errorf("after: %d bytes, %v", len(dst), err)
			}
			ep.Close()
		},
	} {
		e := loneElement(t, 1, Limits{})
		seg, dev, key := registered(t, e, size)
		ep, _ := attach(t, e, 2)
		begin(ep, key)
		arrive(ep)
		seg.Close()
		if dev.closed != 1 {
			t.Errorf("the endpoint ends %s the landing: its segment's backing was closed %d times", name, dev.closed)
		}
	}
}

// TestBackingNoBytes: a peer cannot have a Backing read or write no bytes, which may mean anything to a device.
func TestBackingNoBytes(t *testing.T) {
	e := loneElement(t, 1, Limits{})
	const size = 16
	seg, dev, key := registered(t, e, size)
	if err := errors.Join(seg.ReadAt(nil, size), seg.WriteAt(nil, 0)); err != nil {
		t.Error(err)
	}
	ep, _ := attach(t, e, 2)
	for op, offset := range []uint64{0, size} {
		for _, f := range []struct {
			id   FrameID
			body []byte
		}{
			{frameGet, appendAccess(nil, uint32(op), key.ref(), offset, 0)},
			{framePut, appendAccess(nil, uint32(op), key.ref(), offset, 0)},
			{framePutData, bulkHead(nil, uint32(op), bulkLast, 0)},
			{framePut, appendAccess(nil, uint32(op), key.ref(), 0, size)},
			{framePutData, bulkHead(nil, uint32(op), bulkLast|bulkAbort, 0)},
		} {
			if err := ep.receiver().Frame(f.id, f.body); err != nil {
				t.Fatal(err)
			}
		}
	}
	if dev.empty != 0 {
		t.Errorf("it was asked for no bytes %d times", dev.empty)
	}
}

// TestBackingLog: a peer cannot fill the log by way of a device that fails.
func TestBackingLog(t *testing.T) {
	var log strings.Builder
	now := int64(1)
	e, err := New(Config{Name: "lone", Manual: true, Now: func() int64 { return now }, Incarnation: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, dev, key := registered(t, e, 16)
	dev.err = errors.New("the device does not answer")
	ep, _ := attach(t, e, 2)
	for want := 1; want < 3; want++ {
		for i := range 100 {
			if err := ep.receiver().Frame(frameGet, appendAccess(nil, uint32(i), key.ref(), 0, 8)); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(log.String(), "does not answer"); n != want {
			t.Errorf("it is logged %d times within %d s", n, want)
		}
		now += warnEvery
	}
}

// underWay reports whether operations, or parts of those that take several frames, are under way, or anything waits to be sent.
func underWay(ep *Endpoint) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.ops.inUse()+ep.outbox.n+ep.reserved.n+len(ep.bulk)+len(ep.in.puts)+ep.in.gets > 0
}
