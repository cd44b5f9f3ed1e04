package fabric

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// byeLink has the endpoint's peer answer a goodbye before the call that said it has returned.
type byeLink struct {
	fakeLink
	r    Receiver
	told error // the endpoint's error when the goodbye left
	err  error // what it said to a frame that came with the answer
}

func (l *byeLink) Send(id FrameID, class Class, head, body []byte) error {
	if id == frameGoodbye {
		l.told = (*Endpoint)(l.r.(*receiver)).Err()
		l.err = l.r.Frame(framePong, nil)
	}
	return l.fakeLink.Send(id, class, head, body)
}

func TestEndsForOneReason(t *testing.T) {
	for name, c := range map[string]struct {
		ends func(e *Element, ep *Endpoint)
		want error
		byes int
	}{
		"endpoint closed":         {func(_ *Element, ep *Endpoint) { ep.Close(); ep.receiver().Lost(io.EOF) }, ErrClosed, 1},
		"element closed":          {func(e *Element, ep *Endpoint) { e.Close(); ep.receiver().Lost(io.EOF) }, ErrClosed, 1},
		"lost while it closes":    {func(e *Element, ep *Endpoint) { ep.end(ErrClosed); ep.receiver().Lost(io.EOF); e.Close() }, ErrClosed, 1},
		"lost, then closed":       {func(e *Element, ep *Endpoint) { ep.receiver().Lost(io.EOF); ep.Close(); e.Close() }, ErrPeerLost, 0},
		"closed with a full link": {func(_ *Element, ep *Endpoint) { ep.link.(*byeLink).room = -1 << 30; ep.Close() }, ErrClosed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var heard []error
			e, err := New(Config{Manual: true, Now: func() int64 { return 1 }, OnLost: func(_ *Endpoint, err error) { heard = append(heard, err) }})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() })
			link := &byeLink{fakeLink: fakeLink{room: -1}}
			ep, err := (*Layer)(e).Attach(PeerHello{Incarnation: 2}, func(r Receiver) (Link, error) { link.r = r; return link, nil })
			if err != nil {
				t.Fatal(err)
			}
			rec, err := ep.startOp(nil, "get", nil)
			if err != nil {
				t.Fatal(err)
			}
			c.ends(e, ep)
			_, opErr := Op{rec: rec}.Value(soon(t))
			for what, err := range map[string]error{"Err": ep.Err(), "an operation in flight": opErr, "a later Post": ep.Post(FirstReservedID, nil, nil)} {
				if !errors.Is(err, c.want) {
					t.Errorf("%s: %v, want %v", what, err, c.want)
				}
			}
			if len(heard) != 1 || !errors.Is(heard[0], c.want) {
				t.Errorf("OnLost heard %v, want %v once", heard, c.want)
			}
			byes := 0
			for _, f := range link.take() {
				if f.id == frameGoodbye {
					byes++
				}
			}
			if byes != c.byes {
				t.Errorf("%d goodbyes, want %d", byes, c.byes)
			}
			if c.want == ErrClosed && (!errors.Is(link.told, ErrClosed) || link.err != nil) {
				t.Errorf("when the goodbye left the endpoint said %v, and blamed a frame for %v", link.told, link.err)
			}
		})
	}
}

// TestHeardOfInOrder: an endpoint that ends while its coming is still being told is heard of as gone afterwards, once.
func TestHeardOfInOrder(t *testing.T) {
	for name, ends := range map[string]func(e *Element){
		"endpoint closed": func(e *Element) { e.Endpoints()[0].Close() },
		"element closed":  func(e *Element) { e.Close() },
		"lost": func(e *Element) {
			ep := e.Endpoints()[0]
			ep.open.Store(true) // as if a frame had come before
			ep.receiver().Lost(io.EOF)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var heard []string
			var e *Element
			e, err := New(Config{Manual: true, Now: func() int64 { return 1 },
				OnPeer: func(ep *Endpoint) {
					done := make(chan struct{})
					go func() {
						defer close(done)
						ends(e)
					}()
					<-done
					heard = append(heard, "up")
				},
				OnLost: func(*Endpoint, error) { heard = append(heard, "lost") },
			})
			if err != nil {
				t.Fatal(err)
			}
			e.Watch(func(*Endpoint) { heard = append(heard, "layer up") }, func(*Endpoint, error) { heard = append(heard, "layer lost") })
			attach(t, e, 2)
			e.Close()
			if got := strings.Join(heard, " "); got != "layer up up layer lost lost" {
				t.Errorf("heard %q", got)
			}
		})
	}
}
