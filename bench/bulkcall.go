package bench

import (
	"bytes"
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// fetch is the call with a large answer: its request is empty.
var fetch = rpc.Define("bench.fetch", rpc.Bytes{}, rpc.Bytes{})

// store is the call with a large request: its answer is empty. It has no codec, which would give the handler a copy to keep.
const store = "bench.store"

// bulkAnswer is what fetch answers with: no two words alike.
func bulkAnswer(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16)
	}
	return b
}

// serveBulk has a server answer fetch and store, if they are measured.
func (s *station) serveBulk(spec *role) error {
	if spec.Call == 0 {
		return nil
	}
	answer := bulkAnswer(spec.Call)
	opts := rpc.Options{Inline: spec.Inline}
	if err := fetch.Serve(s.rpc, func(context.Context, *rpc.Call, []byte) ([]byte, error) { return answer, nil }, opts); err != nil {
		return err
	}
	return s.rpc.Register(store, func(_ context.Context, k *rpc.Call) ([]byte, error) { return nil, checkEcho(answer, k.Req) }, opts)
}

// bulkCall measures calls with large answers, and with large requests, one at a time, in turns with a copy of as much: from the server's
// memory where it is mapped, elsewhere between two buffers of the client's.
func (c *client) bulkCall() error {
	size := c.spec.Call
	mem, local, err := c.bulkMemory(size)
	if err != nil {
		return err
	}
	want, got := bulkAnswer(size), make([]byte, 0, size)
	// The call has the default deadline.
	call := func() (err error) {
		if got, err = fetch.CallInto(context.Background(), c.station.rpc, c.eps[0], nil, got); err != nil {
			return err
		}
		return checkEcho(want, got)
	}
	if err := call(); err != nil {
		return err
	}
	if !bytes.Equal(want, got) { // all of it, once
		return fmt.Errorf("the answer of %d bytes is not what the server has", size)
	}
	ways := []*verb{
		{name: "call", f: call},
		{name: "request", f: func() error {
			_, err := c.station.rpc.Call(context.Background(), c.eps[0], store, want)
			return err
		}},
		{name: "memcpy", f: copying(mem, fabric.RightRead, func(there []byte) { copy(local[0], there[:size]) })},
	}
	if !mem.Mapped() {
		ways[2].f = func() error { copy(local[0], local[1]); return nil }
	}
	ops, allocs, err := c.takeTurns(ways, c.bulkRounds())
	if err != nil {
		return err
	}
	took, copied := ways[0].times, ways[2].times.p(0.5)
	c.r.Set("handler", c.spec.handler())
	c.r.Set("gbytes_per_s", float64(size)/took.p(0.5))
	c.r.Set("memcpy_gbytes_per_s", float64(size)/copied)
	c.r.Set("over_memcpy", copied/took.p(0.5))
	c.r.Set("request_gbytes_per_s", float64(size)/ways[1].times.p(0.5))
	c.r.Set("request_over_memcpy", copied/ways[1].times.p(0.5))
	c.r.Set("rtt_ns_p50", took.p(0.5))
	c.r.Set("rtt_ns_p99", took.p(0.99))
	c.r.Set("allocs_per_op", allocs*float64(len(ways))/2) // of the calls, either kind: copies allocate nothing
	c.r.Set("bytes", size)
	c.r.Set("operations", ops)
	return nil
}
