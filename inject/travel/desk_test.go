package travel_test

import (
	"crypto/sha256"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// desk is one element without a world: what it sends stays in a list.
type desk struct {
	tb      testing.TB
	core    *travel.Core
	sent    []sentMsg
	n       int // of sent that count
	ended   []travel.Outcome
	parts   [][]byte
	stops   []*travel.Run
	freed   int
	asked   []travel.ID // Object was called for
	sever   []travel.Peer
	store   map[travel.ID][]byte
	pins    map[travel.ID]int
	full    bool // Send finds no room
	freeing bool // room that was given back is being cleared
	fits    int  // so many messages fit in sent until take; 0: any number
	kept    int  // messages whose credit is withheld

	reserve   func(*travel.Run) travel.Room
	unreserve func(*travel.Run)
}

type sentMsg struct {
	to   travel.Peer
	kind travel.Kind
	body []byte
}

func newDesk(tb testing.TB, self uint64, l travel.Limits) *desk {
	tb.Helper()
	d := &desk{tb: tb, store: map[travel.ID][]byte{}, pins: map[travel.ID]int{}}
	core, err := travel.New(travel.Config{Self: self, Name: string(rune('a' + self - 1)), Limits: l, Store: d, Effects: d})
	if err != nil {
		tb.Fatal(err)
	}
	d.core = core
	return d
}

// put stores an object.
func (d *desk) put(b []byte) travel.ID {
	id := travel.ID(sha256.Sum256(b))
	d.store[id] = b
	return id
}

func (d *desk) Get(id travel.ID) []byte { return d.store[id] }
func (d *desk) Pin(id travel.ID) bool {
	if d.store[id] == nil {
		return false
	}
	d.pins[id]++
	return true
}
func (d *desk) Unpin(id travel.ID) { d.pins[id]-- }

func (d *desk) Send(to travel.Peer, kind travel.Kind, head, body []byte) error {
	if d.full || d.fits > 0 && d.n >= d.fits {
		return travel.ErrBackpressure
	}
	if n := len(head) + len(body); n > travel.MaxMessageBytes {
		d.tb.Errorf("%v has %d bytes, a message at most %d", kind, n, travel.MaxMessageBytes)
	}
	if d.n == len(d.sent) {
		d.sent = append(d.sent, sentMsg{})
	}
	m := &d.sent[d.n]
	d.n++
	m.to, m.kind = to, kind
	m.body = append(append(m.body[:0], head...), body...)
	return nil
}

func (d *desk) Part(_ travel.FutureID, _ uint64, _ uint32, _ bool, data []byte) {
	if d.tb != nil {
		d.parts = append(d.parts, append([]byte(nil), data...))
	}
}

func (d *desk) Complete(f travel.FutureID, o *travel.Outcome) {
	if o.HasReply {
		d.Part(f, 0, 0, true, o.Reply)
	}
	if d.tb != nil {
		d.ended = append(d.ended, *o)
	}
}
func (d *desk) Stop(r *travel.Run)                 { d.stops = append(d.stops, r) }
func (d *desk) FreeState(travel.InvocationID, any) { d.freed++ }
func (d *desk) Retire(any)                         {}
func (d *desk) Keep() any                          { d.kept++; return d.kept }
func (d *desk) Release(any)                        { d.kept-- }
func (d *desk) Reserve(r *travel.Run) travel.Room  { return d.reserve(r) }
func (d *desk) Freeing() bool                      { return d.freeing }
func (d *desk) Unreserve(r *travel.Run)            { d.unreserve(r) }
func (d *desk) Object(id travel.ID, b []byte) {
	d.asked = append(d.asked, id)
	if travel.ID(sha256.Sum256(b)) == id {
		d.store[id] = append([]byte(nil), b...)
	}
}
func (d *desk) Sever(p travel.Peer, _ error) { d.sever = append(d.sever, p) }

// take empties the list of what was sent.
func (d *desk) take() []sentMsg {
	out := make([]sentMsg, d.n)
	for i := range out {
		m := d.sent[i]
		out[i] = sentMsg{m.to, m.kind, append([]byte(nil), m.body...)}
	}
	d.n = 0
	return out
}

// deliverFrom gives a desk what its peer sent; runs that may begin are returned.
func (d *desk) deliverFrom(tb testing.TB, now travel.Instant, from travel.Peer, msgs []sentMsg) (runs []*travel.Run) {
	tb.Helper()
	for _, m := range msgs {
		r, err := d.core.Recv(now, from, m.kind, m.body)
		if err != nil {
			tb.Fatalf("%v: %v", m.kind, err)
		}
		if r != nil {
			runs = append(runs, r)
		}
	}
	return runs
}
