package bench

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
)

// Small figures keep digits that say something.
func TestRounded(t *testing.T) {
	for f, want := range map[float64]string{0: "0.000", 12345.6: "12346", -123.4: "-123", 12.34: "12.3", 1.2345: "1.234", 0.9994: "0.999", 0.5: "0.500",
		0.0123456: "0.0123", -0.0123456: "-0.0123", 0.000012345: "0.0000123", 7e-10: "0.000000000700"} {
		if got := rounded(f).String(); got != want {
			t.Errorf("%v is written as %s, want %s", f, got, want)
		}
	}
}

// The worst of the processes counts. What the runtime allocates for itself is not an operation's.
func TestAllocsPerOp(t *testing.T) {
	for ops, want := range map[int]string{1: "40.0", 40: "1.000", 30_000: "0.00100", 100_000: "0.000"} {
		if got := rounded(allocsPerOp([]uint64{1, 2, 3}, []uint64{10, 42, 3}, ops)).String(); got != want {
			t.Errorf("40 of %d operations are %s each, want %s", ops, got, want)
		}
	}
}

// Every server is asked what it has allocated, and this process counts too.
func TestAllocsAsksAll(t *testing.T) {
	element := func(name string) *fabric.Element {
		tr, err := tcp.New(tcp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		el, err := fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{tr}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { el.Close() })
		return el
	}
	c := &client{station: &station{el: element("client")}, ctx: t.Context()}
	c.hear()
	says := []uint64{300, 100, 200}
	for _, n := range says {
		el := element("server")
		el.Handle(idPing, func(m fabric.Message) { m.From.Post(idPong, nil, m.Body) })
		el.Handle(idAllocs, func(m fabric.Message) { m.From.Post(idAlloc, binary.LittleEndian.AppendUint64(nil, n), nil) })
		addr, err := el.Listen("tcp://127.0.0.1:0")
		if err == nil {
			err = c.dialAll(t.Context(), []serverInfo{{Addr: addr}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.allocs()
	if err != nil || len(got) != len(says)+1 || !slices.Equal(got[:len(says)], says) || got[len(says)] == 0 {
		t.Errorf("%v, %v: want %v and this process's", got, err, says)
	}
}
