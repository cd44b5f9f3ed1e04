package wasm

import (
	"encoding/binary"
	"testing"
)

// TestSIMD: a function may use vectors; sdk/README.md says how.
func TestSIMD(t *testing.T) {
	const source = `#include "wherry.h"
typedef uint32_t four __attribute__((vector_size(16)));
__attribute__((target("simd128"), noinline)) static uint64_t sum(const four *v, uint32_t n)
{
    four s = {0};
    for (uint32_t i = 0; i < n; i++)
        s += v[i] * v[i];
    return (uint64_t)s[0] + s[1] + s[2] + s[3];
}
WHERRY_ENTRY(payload, size)
{
    uint64_t out = sum((const four *)payload, size / sizeof(four));
    return wherry_reply(&out, sizeof out);
}`
	p, err := compileC(t, newEngine(t, Config{}), 2, source, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := acquire(t, bind(t, p, "alice"))
	defer in.Release()
	var payload []byte
	want := uint64(0)
	for i := range uint32(64) {
		payload = binary.LittleEndian.AppendUint32(payload, i)
		want += uint64(i * i)
	}
	h := &fakeHost{}
	if _, err := in.Run(&Run{Payload: payload, Host: h}); err != nil || binary.LittleEndian.Uint64(h.reply) != want {
		t.Errorf("%x, %v; want %d", h.reply, err, want)
	}
}
