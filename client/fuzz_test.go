package client

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/rpc"
	"github.com/wherry-fabric/wherry/schema"
)

// liar is an element that answers each of a node's calls with whatever it was told to, and says so as progress too.
func liar(f *testing.F, ts *cluster.Tokens, says *atomic.Pointer[string]) string {
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		f.Fatal(err)
	}
	auth, err := control.NewAuth(ts, tokenNode)
	if err != nil {
		f.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: "n1", Transports: []fabric.Transport{tr}, Auth: auth})
	if err != nil {
		f.Fatal(err)
	}
	p, err := rpc.New(el, rpc.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { p.Close(); el.Close() })
	for _, call := range []string{control.CallInfo, control.CallStatus, control.CallExplain, control.CallBegin, control.CallAlloc, control.CallFill, control.CallFile,
		control.CallPrepare, control.CallCommit, control.CallAbort, control.CallList, control.CallStat, control.CallTable, control.CallRemove, control.CallGrant} {
		if err := p.Register(call, func(_ context.Context, c *rpc.Call) ([]byte, error) {
			answer := []byte(*says.Load())
			c.Note(answer)
			return answer, nil
		}, rpc.Options{}); err != nil {
			f.Fatal(err)
		}
	}
	addr, err := el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	return addr
}

// FuzzAnswers has a node answer whatever it likes. The client says what it makes of that, soon, and goes on.
func FuzzAnswers(f *testing.F) {
	ts := newTokens(f)
	var says atomic.Pointer[string]
	honest := `{"version":1,"name":"n1"}`
	says.Store(&honest)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Connect(ctx, Config{Name: "fuzz", Nodes: []cluster.Member{{Name: "n1", Addrs: []string{liar(f, ts, &says)}}}, Only: true, Tokens: ts, Token: tokenOwner})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { c.Close() })
	rows, err := schema.Parse("a:u64")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		says.Store(&answer)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var failed []error
		note := func(err error) { failed = append(failed, err) }
		_, err := c.Info(ctx, "n1")
		note(err)
		_, err = c.Status(ctx, "n1")
		note(err)
		_, err = c.List(ctx)
		note(err)
		_, err = c.Stat(ctx, "x")
		note(err)
		_, err = c.Table(ctx, "x", "r")
		note(err)
		note(c.Read(ctx, "x", ReadOptions{Count: 3, Format: batch.CSV}, io.Discard))
		note(c.Grant(ctx, "x", "bob", "r"))
		_, err = c.Load(ctx, LoadSpec{Name: "x", Input: dataset.NewText("in", []byte("1\n2\n")), Options: dataset.Options{Format: dataset.CSV, Schema: rows}}, func(LoadProgress) {})
		note(err)
		note(c.Remove(ctx, "x"))
		if ctx.Err() != nil {
			t.Fatalf("%q keeps the client busy: %v", answer, failed)
		}
		for _, err := range failed {
			if err != nil && strings.TrimSpace(err.Error()) == "" {
				t.Fatalf("%q fails without a word", answer)
			}
		}
		if c.connected() == nil {
			t.Fatalf("%q: the client has let the node go: %v", answer, failed)
		}
	})
}
