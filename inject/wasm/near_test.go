package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// TestGetNear: the host call checks where it writes to, and hands on what the host says.
func TestGetNear(t *testing.T) {
	both(t, func(t *testing.T, e *Engine) {
		// get_near(payload.element, 1, payload.offset, payload.to, 8)
		wasm := writtenWith("get_near", 0x20, 0, 0x28, 2, 0, 0x41, 1, 0x20, 0, 0x29, 3, 8, 0x20, 0, 0x28, 2, 4, 0x41, 8, 0x10, 0)
		p, err := e.Compile(context.Background(), sha256.Sum256(wasm), 2, wasm, abi.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		b := bind(t, p, "alice", newSegment(t, 1<<16).window(false), newSegment(t, 1<<16).window(true))
		in := acquire(t, b)
		defer in.Release()
		readOnly, writable := uint32(b.layout.windows[0].addr), uint32(b.layout.windows[1].addr)
		for _, c := range []struct {
			element, to uint32
			offset      uint64
			want        abi.Status
		}{
			{1, writable, 8, abi.OK},
			{farElement, writable, 8, abi.ErrFar},
			{1, writable, 60, abi.ErrArgument},
			{1, readOnly, 8, abi.ErrRights},
			{1, 1<<32 - 4, 8, abi.ErrMemory},
		} {
			h := &fakeHost{}
			h.remote[8] = 42
			payload := binary.LittleEndian.AppendUint32(nil, c.element)
			payload = binary.LittleEndian.AppendUint32(payload, c.to)
			payload = binary.LittleEndian.AppendUint64(payload, c.offset)
			in.mem[writable] = 0
			st, err := in.Run(&Run{Payload: payload, Host: h})
			if err != nil || st != c.want || in.mem[writable] == 42 != (c.want == abi.OK) {
				t.Errorf("%+v: %v, %v, and %d at its end; want %v", c, st, err, in.mem[writable], c.want)
			}
		}
	})
}
