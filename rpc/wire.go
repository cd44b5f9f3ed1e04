package rpc

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// The messages of the protocol. Requests and notes wait for the peer's credit;
// what ends something travels on reserved credits. All numbers are little-endian.
//
//	request   u64 name's hash, u64 number, u64 lowest number under way,
//	          u64 ns remaining, u32 flags, u32 zero, payload
//	response  u64 number, u32 code, u32 flags, payload (an error's text if code is not 0)
//	note      u64 number, bytes
//	cancel    u64 number
//	ack       u64 number: the response's segment was read
//
// With flagBulk a payload is a key and u64 length: the payload itself is in the
// key's segment.
const (
	// IDRequest and IDNote are of normal class.
	IDRequest fabric.FrameID = 80
	IDNote    fabric.FrameID = 81
	// IDResponse, IDCancel and IDAck are of reserved class.
	IDResponse fabric.FrameID = 2100
	IDCancel   fabric.FrameID = 2101
	IDAck      fabric.FrameID = 2102

	requestBytes  = 40
	responseBytes = 16
	numberBytes   = 8
	bulkBytes     = fabric.KeyBytes + 8

	flagBulk = 1 << 0
)

// request is a request as it travels.
type request struct {
	method uint64
	id     uint64
	low    uint64 // no lower number will come any more
	left   time.Duration
	bulk   bool
	body   []byte
}

func (r *request) appendHead(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, r.method)
	b = binary.LittleEndian.AppendUint64(b, r.id)
	b = binary.LittleEndian.AppendUint64(b, r.low)
	b = binary.LittleEndian.AppendUint64(b, uint64(max(r.left, 0)))
	return binary.LittleEndian.AppendUint64(b, flags(r.bulk))
}

func flags(bulk bool) uint64 {
	if bulk {
		return flagBulk
	}
	return 0
}

// decodeRequest reads a request; its body is part of b.
func decodeRequest(b []byte) (request, error) {
	if len(b) < requestBytes {
		return request{}, fmt.Errorf("%w: a request of %d bytes, its head alone has %d", ErrWire, len(b), requestBytes)
	}
	le := binary.LittleEndian
	r := request{method: le.Uint64(b), id: le.Uint64(b[8:]), low: le.Uint64(b[16:]), body: b[requestBytes:]}
	left, f := le.Uint64(b[24:]), le.Uint64(b[32:])
	if left > math.MaxInt64 || f&^flagBulk != 0 || r.low > r.id || r.id == math.MaxUint64 {
		return request{}, fmt.Errorf("%w: a request with number %d (lowest %d), %d ns left, flags %#x", ErrWire, r.id, r.low, left, f)
	}
	r.left, r.bulk = time.Duration(left), f&flagBulk != 0
	if r.bulk && len(r.body) != bulkBytes {
		return request{}, fmt.Errorf("%w: a key of %d bytes, want %d", ErrWire, len(r.body), bulkBytes)
	}
	return r, nil
}

// response is a response as it travels.
type response struct {
	id   uint64
	code Code
	bulk bool
	body []byte
}

func (r *response) appendHead(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, r.id)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.code))
	return binary.LittleEndian.AppendUint32(b, uint32(flags(r.bulk)))
}

// decodeResponse reads a response; its body is part of b.
func decodeResponse(b []byte) (response, error) {
	if len(b) < responseBytes {
		return response{}, fmt.Errorf("%w: a response of %d bytes, its head alone has %d", ErrWire, len(b), responseBytes)
	}
	le := binary.LittleEndian
	r := response{id: le.Uint64(b), code: Code(le.Uint32(b[8:])), body: b[responseBytes:]}
	f := le.Uint32(b[12:])
	r.bulk = f&flagBulk != 0
	if f&^flagBulk != 0 || r.bulk && (r.code != codeOK || len(r.body) != bulkBytes) {
		return response{}, fmt.Errorf("%w: a response with code %d, flags %#x and %d bytes", ErrWire, r.code, f, len(r.body))
	}
	return r, nil
}

func appendNumber(b []byte, id uint64) []byte { return binary.LittleEndian.AppendUint64(b, id) }

// decodeNumber reads the number that notes, cancels and acks begin with.
func decodeNumber(b []byte) (id uint64, rest []byte, err error) {
	if len(b) < numberBytes {
		return 0, nil, fmt.Errorf("%w: %d bytes where a number has %d", ErrWire, len(b), numberBytes)
	}
	return binary.LittleEndian.Uint64(b), b[numberBytes:], nil
}

// bulk is a payload that lies in a segment of whoever sent it.
type bulk struct {
	key  fabric.Key
	size uint64
}

func (k bulk) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(k.key.Append(b), k.size)
}

// decodeBulk reads a key and a length of at most limit.
func decodeBulk(b []byte, limit int) (bulk, error) {
	if len(b) != bulkBytes {
		return bulk{}, fmt.Errorf("%w: a key of %d bytes, want %d", ErrWire, len(b), bulkBytes)
	}
	key, err := fabric.DecodeKey(b[:fabric.KeyBytes])
	if err != nil {
		return bulk{}, fmt.Errorf("%w: %w", ErrWire, err)
	}
	k := bulk{key, binary.LittleEndian.Uint64(b[fabric.KeyBytes:])}
	if k.size > uint64(limit) {
		return bulk{}, fmt.Errorf("%w: %d bytes, at most %d are taken", ErrTooLarge, k.size, limit)
	}
	if k.size == 0 || k.size > key.Size {
		return bulk{}, fmt.Errorf("%w: %d bytes in a key's %d", ErrWire, k.size, key.Size)
	}
	return k, nil
}
