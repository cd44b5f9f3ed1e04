package tcp

import (
	"context"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// TestIdleLinksKeepNoBuffers: receive buffers are for links that have something
// to say, however many there are and whoever spoke before.
func TestIdleLinksKeepNoBuffers(t *testing.T) {
	ours := newAuthority(t, "ca")
	for name, creds := range map[string]func(string) Credentials{
		"plain": func(string) Credentials { return nil },
		"TLS":   func(name string) Credentials { return ours.holder(t, name) },
	} {
		t.Run(name, func(t *testing.T) { idleLinks(t, creds) })
	}
}

func idleLinks(t *testing.T, creds func(string) Credentials) {
	const links, rounds = 60, 4
	// The test leads, so that it may look at the links.
	acceptor, tr := element(t, "acceptor", creds("acceptor"), func(c *fabric.Config) { c.Manual = true })
	got := 0
	if err := acceptor.Handle(fabric.FirstMessageID, func(m fabric.Message) { got++ }); err != nil {
		t.Fatal(err)
	}
	addr, err := acceptor.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dialler, _ := element(t, "dialler", creds("dialler"))
	var eps []*fabric.Endpoint
	for range links {
		ep, err := dialler.Dial(ctx, addr)
		if err != nil {
			t.Fatal(err)
		}
		eps = append(eps, ep)
	}
	want := 0
	for round := range rounds {
		for i, ep := range eps {
			for range 1 + (i+round)%3 { // some become the one that is asked first
				want++
				if err := ep.Send(ctx, fabric.FirstMessageID, nil, make([]byte, 100+i*50)); err != nil {
					t.Fatal(err)
				}
				for ctx.Err() == nil && got < want && round%2 == 0 {
					acceptor.Progress()
				}
			}
		}
		for ctx.Err() == nil && got < want {
			acceptor.Progress()
		}
		if got != want {
			t.Fatalf("%d of %d messages came", got, want)
		}
		held := 0
		for _, l := range tr.links {
			if l.buf != nil || l.sec != nil && l.sec.wire.raw != nil {
				held++
			}
		}
		if held > 2 {
			t.Errorf("round %d: %d of %d idle links have a receive buffer, at most 2 should: the last one and the hot one", round, held, links)
		}
	}
}
