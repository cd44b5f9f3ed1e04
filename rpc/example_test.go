package rpc_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/rpc"
)

// newPeer is an element with a Peer over tcp.
func newPeer(name string) (*fabric.Element, *rpc.Peer, error) {
	t, err := tcp.New(tcp.Config{})
	if err != nil {
		return nil, nil, err
	}
	el, err := fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{t}})
	if err != nil {
		return nil, nil, err
	}
	p, err := rpc.New(el, rpc.Config{})
	return el, p, err
}

func Example() {
	server, calls, err := newPeer("server")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	calls.Register("upper", func(_ context.Context, c *rpc.Call) ([]byte, error) {
		return bytes.ToUpper(c.Req), nil
	}, rpc.Options{})
	addr, err := server.Listen("tcp://127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	el, caller, err := newPeer("client")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer el.Close()
	ctx := context.Background()
	ep, err := el.Dial(ctx, addr)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := caller.Call(ctx, ep, "upper", []byte("boat"))
	fmt.Println(string(answer), err)
	_, err = caller.Call(ctx, ep, "lower", nil)
	fmt.Println(err)
	// Output:
	// BOAT <nil>
	// lower at server: it does not serve this call
}
