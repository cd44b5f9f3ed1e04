package rpc_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// A method that both sides know: its name, and how request and answer are written.
func shout() rpc.Method[string, string] {
	return rpc.Define("example.shout", rpc.Text{}, rpc.Text{})
}

// link is a server, and a client's endpoint to it.
func link() (server, client *rpc.Peer, ep *fabric.Endpoint, end func(), err error) {
	a, server, err := newPeer("server")
	if err != nil {
		return nil, nil, nil, nil, err
	}
	b, client, err := newPeer("client")
	if err != nil {
		a.Close()
		return nil, nil, nil, nil, err
	}
	end = func() {
		client.Close()
		server.Close()
		b.Close()
		a.Close()
	}
	addr, err := a.Listen("tcp://127.0.0.1:0")
	if err == nil {
		ep, err = b.Dial(context.Background(), addr)
	}
	return server, client, ep, end, err
}

func ExampleMethod() {
	server, client, ep, end, err := link()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	shout().Serve(server, func(_ context.Context, _ *rpc.Call, s string) (string, error) {
		return strings.ToUpper(s) + "!", nil
	}, rpc.Options{})
	answer, err := shout().Call(context.Background(), client, ep, "ahoy")
	fmt.Println(answer, err)
	// Output: AHOY! <nil>
}

func ExamplePeer_Start() {
	server, client, ep, end, err := link()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	server.Register("length", func(_ context.Context, c *rpc.Call) ([]byte, error) {
		return fmt.Appendf(nil, "%d", len(c.Req)), nil
	}, rpc.Options{})
	ctx := context.Background()
	var futures []rpc.Future
	for _, word := range []string{"oar", "rowlock", "stern"} {
		f, err := client.Start(ctx, ep, "length", []byte(word))
		if err != nil {
			fmt.Println(err)
			return
		}
		futures = append(futures, f)
	}
	for _, f := range futures {
		answer, err := f.Wait(ctx)
		fmt.Println(string(answer), err)
	}
	// Output:
	// 3 <nil>
	// 7 <nil>
	// 5 <nil>
}

// A client lends the server a segment, which pulls from it what it wants and pushes the result.
func ExampleBulk() {
	server, client, ep, end, err := link()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	upper := rpc.Define("example.upper", rpc.BulkCodec{}, rpc.Nothing{})
	upper.Serve(server, func(ctx context.Context, c *rpc.Call, b *rpc.Bulk) (struct{}, error) {
		data := make([]byte, b.Size())
		if _, err := c.Pull(ctx, b, 0, rpc.Memory{data}); err != nil {
			return struct{}{}, err
		}
		_, err := c.Push(ctx, b, 0, rpc.Memory{[]byte(strings.ToUpper(string(data)))})
		return struct{}{}, err
	}, rpc.Options{})

	seg, err := client.Element().NewSegment(1<<20, fabric.Writable)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer seg.Close()
	copy(seg.Bytes(), "pull away")
	bulk, err := client.Expose(fabric.RightsAll, rpc.BulkOptions{}, rpc.Span{Segment: seg, Offset: 0, Size: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bulk.Close()
	_, err = upper.Call(context.Background(), client, ep, bulk)
	fmt.Println(string(seg.Bytes()[:9]), err)
	// Output: PULL away <nil>
}
