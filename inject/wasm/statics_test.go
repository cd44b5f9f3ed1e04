package wasm

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
)

// changing changes all that it has, and says what it found: a variable, a zeroed one, the last of many zeroed ones, the memory's pages and what lies
// in the last one, and how often _initialize ran.
const changing = `#include "wherry.h"
static uint64_t variable = 41, zeroed, many[1 << 17], began = 7;
#ifdef BEGINS
__attribute__((export_name("_initialize"))) void begin(void) { began++, many[3] = 9, __builtin_wasm_memory_grow(0, 1); }
#endif
WHERRY_ENTRY(payload, size)
{
    uint64_t *top = (uint64_t *)(__builtin_wasm_memory_size(0) * 65536 - 8);
    uint64_t out[6] = {variable, zeroed, many[(1 << 17) - 1], __builtin_wasm_memory_size(0), 0, began * 100 + many[3]};
    __builtin_wasm_memory_grow(0, 6);
    for (uint64_t *at = top + 1; at < top + 6 * 8192; at += 512)
        out[4] += (*at)++;
    variable++, zeroed++, many[(1 << 17) - 1]++, many[3]++, began++;
    return wherry_reply(out, sizeof out);
}
`

func compileC(t testing.TB, e *Engine, version uint32, source string, defines map[string]string) (*Program, error) {
	t.Helper()
	code, err := cbuild.Compile(t.Context(), cbuild.Source{Name: "f.c", Code: []byte(source)}, cbuild.Options{Defines: defines})
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.Compile(t.Context(), sha256.Sum256(code), version, code, abi.Limits{})
	if err == nil {
		t.Cleanup(p.Close)
	}
	return p, err
}

// TestStatics: static variables, the memory's size and what begins there are as declared at every run of an instance, or as
// _initialize left them.
func TestStatics(t *testing.T) {
	for _, defines := range []map[string]string{nil, {"BEGINS": "1"}} {
		p, err := compileC(t, newEngine(t, Config{}), 2, changing, defines)
		if err != nil {
			t.Fatal(err)
		}
		in := acquire(t, bind(t, p, "alice"))
		var first []uint64
		for i := range 4 {
			h := &fakeHost{}
			if st, err := in.Run(&Run{Host: h}); err != nil || st != abi.OK {
				t.Fatal(st, err)
			}
			var got []uint64
			for b := h.reply; len(b) > 0; b = b[8:] {
				got = append(got, binary.LittleEndian.Uint64(b))
			}
			want := []uint64{41, 0, 0, got[3], 0, 700}
			if defines != nil {
				want[5] = 809
			}
			if first == nil {
				first = got
			}
			if !slices.Equal(got, want) || !slices.Equal(got, first) {
				t.Errorf("%v: run %d found %v, want %v", defines, i, got, want)
			}
		}
		in.Release()
	}
}

// TestStaticsOfABI1: a function of version 1 finds what its last run left, as it did.
func TestStaticsOfABI1(t *testing.T) {
	source := strings.Replace(changing, `#include "wherry.h"`, `typedef unsigned long long uint64_t; typedef unsigned uint32_t;
__attribute__((import_module("wherry"), import_name("reply"))) int wherry_reply(const void *, uint32_t);
#define WHERRY_ENTRY(p, n) __attribute__((export_name("wherry_main"))) int wherry_main(void *p, uint32_t n)`, 1)
	p, err := compileC(t, newEngine(t, Config{}), 1, source, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := acquire(t, bind(t, p, "alice"))
	defer in.Release()
	for i := range uint64(3) {
		h := &fakeHost{}
		if _, err := in.Run(&Run{Host: h}); err != nil || binary.LittleEndian.Uint64(h.reply) != 41+i {
			t.Errorf("run %d: %x, %v", i, h.reply, err)
		}
	}
}

// TestStaticsAreNotScanned: of the memory of a function that begins with a start function nothing is mapped but what that touched, however large it is.
func TestStaticsAreNotScanned(t *testing.T) {
	p, err := compileC(t, newEngine(t, Config{}), 2, `#include "wherry.h"
static uint64_t large[1 << 24];
__attribute__((export_name("_initialize"))) void begin(void) { large[0] = 1; }
WHERRY_ENTRY(payload, size) { return wherry_reply(large, 8); }`, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := acquire(t, bind(t, p, "alice"))
	defer in.Release()
	resident := make([]byte, (1<<27)/4096)
	from := in.memory.Bytes()[1<<20:][:1<<27]
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&from[0])), uintptr(len(from)), uintptr(unsafe.Pointer(&resident[0]))); errno != 0 {
		t.Fatal(errno)
	}
	n := 0
	for _, r := range resident {
		n += int(r & 1)
	}
	if n > 1024 {
		t.Errorf("%d pages of 128 MiB are mapped, of which it stored 8 bytes", n)
	}
}

// BenchmarkStatics is a run of a function with so many bytes of static variables, which takes nothing else.
func BenchmarkStatics(b *testing.B) {
	e := newEngine(b, Config{})
	for _, n := range []int{0, 64, 4 << 10, 32 << 10, 1 << 20} {
		source := `#include "wherry.h"
WHERRY_ENTRY(payload, size) { return WHERRY_OK; }`
		if n > 0 {
			source = fmt.Sprintf(`#include "wherry.h"
static volatile uint8_t bytes[%d];
WHERRY_ENTRY(payload, size) { bytes[%d]++; return WHERRY_OK; }`, n, n-1)
		}
		for _, version := range []uint32{1, 2} {
			p, err := compileC(b, e, version, source, nil)
			if err != nil {
				b.Fatal(err)
			}
			in := acquire(b, bind(b, p, "alice"))
			r := &Run{Host: &quietHost{}}
			b.Run(fmt.Sprintf("%d/abi%d", n, version), func(b *testing.B) {
				for b.Loop() {
					if _, err := in.Run(r); err != nil {
						b.Fatal(err)
					}
				}
			})
			in.Release()
		}
	}
}

// TestStackIsUsedUp: an access below the stack's end says so, with and without a check of stores; one elsewhere beyond memory does not.
func TestStackIsUsedUp(t *testing.T) {
	const source = `#include "wherry.h"
static __attribute__((noinline)) uint32_t deeper(volatile uint8_t *above, uint64_t n)
{
    volatile uint8_t large[40000];
    for (uint32_t i = 0; i < sizeof large && !LOADS; i++)
        large[i] = (uint8_t)(i + n);
    return large[n] + (n == 0 ? above[0] : deeper(large, n - 1));
}
WHERRY_ENTRY(payload, size)
{
    const struct { uint64_t deep, stray; } *p = payload;
    uint8_t first = 0;
    if (p->stray)
        *(volatile uint8_t *)(uintptr_t)p->stray = 1;
    return deeper(&first, p->deep) > 1 << 30;
}
`
	used := regexp.MustCompile(`^out of bounds memory access(: a store at address 0xffff[0-9a-f]{4})?: the stack of 64 KiB is used up \(its pointer is at 0xffff[0-9a-f]{4}, below address 0\); keep large arrays static or in scratch\n`)
	ro := makeSegment(t, 1<<16, unix.F_SEAL_SHRINK|unix.F_SEAL_FUTURE_WRITE)
	both(t, func(t *testing.T, e *Engine) {
		for _, loads := range []string{"0", "1"} {
			p, err := compileC(t, e, 2, source, map[string]string{"LOADS": loads})
			if err != nil {
				t.Fatal(err)
			}
			for _, windows := range [][]abi.Window{nil, {ro.window(false)}} {
				b := bind(t, p, "alice", windows...)
				for _, c := range []struct {
					deep, stray uint64
					traps, used bool
				}{{0, 0, false, false}, {1, 0, true, true}, {200, 0, true, true}, {0, 0xffff8000, true, false}} {
					in := acquire(t, b)
					_, err = in.Run(&Run{Payload: binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, c.deep), c.stray), Host: &fakeHost{}})
					in.Release()
					var trap *TrapError
					switch {
					case !c.traps && err == nil:
					case !errors.As(err, &trap) || trap.Reason != errOutOfBounds.Error() || !plainStack(trap.Text) || used.MatchString(trap.Text) != c.used:
						t.Errorf("loads %s, %d windows, %+v: %v", loads, len(windows), c, err)
					}
				}
			}
		}
	})
}
