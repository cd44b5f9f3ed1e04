// Package protocodec lets protobuf messages be the requests and answers of rpc
// methods. It is apart from package rpc so that only its users carry protobuf:
//
//	var Stat = rpc.Define("files.stat", protocodec.For[pb.StatRequest](), protocodec.For[pb.StatReply]())
package protocodec

import (
	"google.golang.org/protobuf/proto"

	"github.com/wherry-fabric/wherry/rpc"
)

// message is a pointer to a generated message type M.
type message[M any] interface {
	*M
	proto.Message
}

// codec encodes messages; it has no state.
type codec[M any, P message[M]] struct{}

// For is the codec of the generated message type M. Decode uses the memory of old, if it is not
// nil; a nil message is written as an empty one.
func For[M any, P message[M]]() rpc.Codec[P] { return codec[M, P]{} }

func (codec[M, P]) Append(b []byte, v P) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(b, v)
}

func (codec[M, P]) Decode(old P, b []byte) (P, error) {
	if old == nil {
		old = new(M)
	}
	return old, proto.Unmarshal(b, old)
}
