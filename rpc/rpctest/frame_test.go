package rpctest_test

import (
	"encoding/binary"
	"math"
	"time"
)

// This file writes messages by hand, as docs/rpc.md lays them out.

func appendID(b []byte, id uint64) []byte { return binary.LittleEndian.AppendUint64(b, id) }

// appendRequest appends a request without extensions and payload, whose lag is unknown.
func appendRequest(b []byte, method, id uint64, left time.Duration) []byte {
	b = binary.LittleEndian.AppendUint64(b, method)
	b = appendID(b, id)
	b = binary.LittleEndian.AppendUint32(b, math.MaxUint32)
	b = binary.LittleEndian.AppendUint32(b, uint32(left.Microseconds()))
	return append(b, 0, 0, 0, 0)
}
