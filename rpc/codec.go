package rpc

import "fmt"

// Codec turns values of one type into bytes and back. Implementations must be
// usable from several goroutines. Package rpc/protocodec has one for protobuf messages.
type Codec[T any] interface {
	// Append appends v's bytes to b and returns the longer slice.
	Append(b []byte, v T) ([]byte, error)
	// Decode reads a value from b, which it must not keep. Like append, it may use the memory of
	// old, which is the zero value or one that is no longer needed.
	Decode(old T, b []byte) (T, error)
}

// Bytes carries bytes as they are. Decode copies them.
type Bytes struct{}

// Append implements Codec.
func (Bytes) Append(b, v []byte) ([]byte, error) { return append(b, v...), nil }

// Decode implements Codec.
func (Bytes) Decode(old, b []byte) ([]byte, error) { return append(old[:0], b...), nil }

// plain is a codec whose values are their bytes: a large one is not copied to be written, nor from where it was read to.
type plain[T any] interface {
	bytesOf(v T) []byte
	valueOf(b []byte) T
}

func (Bytes) bytesOf(v []byte) []byte { return v }
func (Bytes) valueOf(b []byte) []byte { return b }

// Text carries a string as it is.
type Text struct{}

// Append implements Codec.
func (Text) Append(b []byte, v string) ([]byte, error) { return append(b, v...), nil }

// Decode implements Codec.
func (Text) Decode(_ string, b []byte) (string, error) { return string(b), nil }

// Nothing carries no bytes: for calls without arguments, or without an answer.
type Nothing struct{}

// Append implements Codec.
func (Nothing) Append(b []byte, _ struct{}) ([]byte, error) { return b, nil }

// Decode implements Codec.
func (Nothing) Decode(_ struct{}, b []byte) (struct{}, error) {
	if len(b) > 0 {
		return struct{}{}, fmt.Errorf("%d bytes where none belong", len(b))
	}
	return struct{}{}, nil
}
