package echo

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/wherry-fabric/wherry/bench/peers/figures"
)

// raw is a message that is its own encoding: what gRPC and Connect carry here
// in place of protobuf.
type raw struct{ b []byte }

// codecName is the codec's name on the wire, in content types.
const codecName = "raw"

func rawOf(v any) (*raw, error) {
	r, ok := v.(*raw)
	if !ok {
		return nil, fmt.Errorf("echo: the raw codec carries *raw, not %T", v)
	}
	return r, nil
}

// grpcCodec is gRPC's encoding.CodecV2 for raw.
type grpcCodec struct{}

func (grpcCodec) Name() string { return codecName }

func (grpcCodec) Marshal(v any) (mem.BufferSlice, error) {
	r, err := rawOf(v)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(r.b)}, nil
}

func (grpcCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r, err := rawOf(v)
	if err != nil {
		return err
	}
	n := data.Len()
	if cap(r.b) < n {
		r.b = make([]byte, n)
	}
	r.b = r.b[:n]
	data.CopyTo(r.b)
	return nil
}

// connectCodec is connect.Codec for raw.
type connectCodec struct{}

func (connectCodec) Name() string { return codecName }

func (connectCodec) Marshal(v any) ([]byte, error) {
	r, err := rawOf(v)
	if err != nil {
		return nil, err
	}
	return r.b, nil
}

func (connectCodec) MarshalAppend(b []byte, v any) ([]byte, error) {
	r, err := rawOf(v)
	if err != nil {
		return nil, err
	}
	return append(b, r.b...), nil
}

func (connectCodec) Unmarshal(data []byte, v any) error {
	r, err := rawOf(v)
	if err != nil {
		return err
	}
	r.b = append(r.b[:0], data...)
	return nil
}

// bulkPool keeps a server from making 1 MiB anew for each put.
type bulkPool struct{ p sync.Pool }

func (p *bulkPool) get() []byte {
	if b, ok := p.p.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, figures.BulkBytes)
}

func (p *bulkPool) put(b []byte) {
	if cap(b) >= figures.BulkBytes {
		p.p.Put(&b)
	}
}
