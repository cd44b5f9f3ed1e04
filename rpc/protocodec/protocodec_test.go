package protocodec_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/rpc"
	"github.com/wherry-fabric/wherry/rpc/protocodec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loop is an element that calls itself.
func loop() (p *rpc.Peer, ep *fabric.Endpoint, end func(), err error) {
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		return nil, nil, nil, err
	}
	el, err := fabric.New(fabric.Config{Name: "loop", Transports: []fabric.Transport{tr}})
	if err != nil {
		return nil, nil, nil, err
	}
	end = func() { el.Close() }
	if p, err = rpc.New(el, rpc.Config{}); err != nil {
		return nil, nil, end, err
	}
	end = func() { p.Close(); el.Close() }
	addr, err := el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		return nil, nil, end, err
	}
	ep, err = el.Dial(context.Background(), addr)
	return p, ep, end, err
}

func words() rpc.Method[*wrapperspb.StringValue, *structpb.ListValue] {
	return rpc.Define("test.words", protocodec.For[wrapperspb.StringValue](), protocodec.For[structpb.ListValue]())
}

func split(_ context.Context, _ *rpc.Call, req *wrapperspb.StringValue) (*structpb.ListValue, error) {
	list := &structpb.ListValue{}
	for w := range strings.FieldsSeq(req.Value) {
		list.Values = append(list.Values, structpb.NewStringValue(w))
	}
	return list, nil
}

func TestCalls(t *testing.T) {
	p, ep, end, err := loop()
	if end != nil {
		defer end()
	}
	if err != nil {
		t.Fatal(err)
	}
	m := words()
	if err := m.Serve(p, split, rpc.Options{Inline: true}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 50_000} {
		got, err := m.Call(t.Context(), p, ep, wrapperspb.String(strings.Repeat("word ", n)))
		if err != nil || len(got.Values) != n || n > 0 && got.Values[n-1].GetStringValue() != "word" {
			t.Errorf("%d words: %d, %v", n, len(got.GetValues()), err)
		}
	}
	old := &structpb.ListValue{}
	got, err := m.CallInto(t.Context(), p, ep, wrapperspb.String("a b"), old)
	if err != nil || got != old || len(old.Values) != 2 {
		t.Errorf("into %p: %p, %v", old, got, err)
	}
	if got, err := m.Call(t.Context(), p, ep, nil); err != nil || len(got.Values) != 0 {
		t.Errorf("a nil message: %v, %v", got, err)
	}
	if _, err := p.Call(t.Context(), ep, "test.words", []byte{0xff}); !errors.Is(err, rpc.ErrRequest) {
		t.Errorf("what is no message: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x0a\x03abc"))
	f.Add([]byte{0xff})
	c := protocodec.For[wrapperspb.StringValue]()
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := c.Decode(nil, b)
		if err != nil {
			return
		}
		wire, err := c.Append(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := c.Decode(v, wire); err != nil || !proto.Equal(v, again) {
			t.Fatalf("%x became %v, %v", b, again, err)
		}
	})
}

func Example() {
	p, ep, end, err := loop()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	m := words()
	m.Serve(p, split, rpc.Options{Inline: true})
	got, err := m.Call(context.Background(), p, ep, wrapperspb.String("ten men"))
	fmt.Println(len(got.Values), got.Values[1].GetStringValue(), err)
	// Output: 2 men <nil>
}
