package bench

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/sdk"
)

const (
	hostileRounds = 5 // the usual number
	// hostileTime is the run time that each of them wants, patience how long anything of theirs may take here, and bombTime how long what is compiled beside is watched: twice what a compile may take.
	hostileTime = 5 * time.Second
	patience    = 30 * time.Second
	bombTime    = 2500 * time.Millisecond
	// runsFor is how long an endless run goes on before it is canceled.
	runsFor = 20 * time.Millisecond
)

// hostile functions, by name.
var hostile = []struct{ name, body string }{
	{"spin", "for (volatile int i = 0;; i = 1 - i) ;"},
	{"stray", "*(volatile int *)(uintptr_t)0xFFFFFFF0u = 1; return 0;"},
	{"deep", "return deep(payload, size);"},
}

const hostileHead = `#include "wherry.h"
static __attribute__((noinline, unused)) int32_t deep(const void *p, uint32_t n)
{
    volatile char frame[4096];
    frame[n & 4095] = 1;
    return deep(p, n + 1) + frame[n & 4095];
}
WHERRY_ENTRY(payload, size) { (void)payload, (void)size; `

// Functions that fill their heaps, each in code of its own, and do not end.
const (
	fillers   = 8
	fillEach  = 4 // runs
	fillBytes = 24 << 20
	fillCode  = `#include "wherry.h"
WHERRY_ENTRY(payload, size)
{
    (void)payload, (void)size;
    if (__builtin_wasm_memory_grow(0, (24u << 20) >> 16) == (unsigned long)-1) return 1;
    unsigned char *end = (unsigned char *)(__builtin_wasm_memory_size(0) << 16);
    for (unsigned char *p = end - (24u << 20); p < end; p += 4096) *(volatile unsigned char *)p = %d + 1;
    for (volatile int i = 0;; i = 1 - i) ;
}
`
)

// hostile builds them, and what is meant for compilers: a large function, and as bitcode also a small one that grows.
func (b *builder) hostile() error {
	limits := abi.Limits{RunTime: hostileTime}
	for _, h := range hostile {
		src := cbuild.Source{Name: h.name + ".c", Code: []byte(hostileHead + h.body + " }\n")}
		if err := b.build(src, image.Manifest{Name: h.name, Limits: limits}, nil); err != nil {
			return err
		}
	}
	for i := range fillers {
		if b.forms[0] != image.Wasm { // what others are charged their processes have, each its own
			break
		}
		src := cbuild.Source{Name: "fill.c", Code: fmt.Appendf(nil, fillCode, i)}
		if err := b.build(src, image.Manifest{Name: fmt.Sprint("fill", i), Limits: abi.Limits{RunTime: hostileTime, HeapBytes: fillBytes + 1<<20}}, nil); err != nil {
			return err
		}
	}
	if err := b.ready(xrdma.Echo(), "echo"); err != nil {
		return err
	}
	large := "#include \"wherry.h\"\nWHERRY_ENTRY(payload, size) { const uint64_t *p = payload; uint64_t v = size;\n"
	for i := range 300 {
		large += fmt.Sprintf("if (p[v %% %d] > v) v = v * %d + p[%d]; else v ^= p[v & %d];\n", i+1, 2*i+1, i, i)
	}
	src := cbuild.Source{Name: "large.c", Code: []byte(large + "return wherry_reply(&v, 8); }\n")}
	if err := b.build(src, image.Manifest{Name: "large"}, nil); err != nil {
		return err
	}
	if b.forms[0] != image.LLVMBitcode {
		return nil
	}
	return b.bomb()
}

// bomb is bitcode whose functions each call two copies of the one before: the compiler that inlines them has 2^40 additions to make. The sender has simplified
// nothing, so it is made without cbuild.
func (b *builder) bomb() error {
	bomb := "#include \"wherry.h\"\n#define I static inline __attribute__((always_inline)) uint64_t\nI f0(uint64_t x) { return x * x + 1; }\n"
	for i := range 40 {
		bomb += fmt.Sprintf("I f%d(uint64_t x) { return f%d(x) ^ f%d(x + 3); }\n", i+1, i, i)
	}
	bomb += "WHERRY_ENTRY(payload, size) { uint64_t v = size ? f40(size) : 7; return wherry_reply(&v, 8); }\n"
	if err := os.WriteFile(filepath.Join(b.dir, sdk.HeaderName), []byte(sdk.Header()), 0o600); err != nil {
		return err
	}
	triple, err := cbuild.Triple(worker.Arch)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(b.ctx, "clang", "--target="+triple, "-O2", "-ffreestanding", "-nostdlib", "-ffp-contract=off", "-fsigned-char", "-fPIC", "-emit-llvm",
		"-Xclang", "-disable-llvm-passes", "-I", b.dir, "-c", "-x", "c", "-", "-o", "-")
	cmd.Stdin = strings.NewReader(bomb)
	code, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("clang: %w", err)
	}
	img, err := image.Build(image.Manifest{Name: "bomb", ABI: abi.Version, Imports: []string{"reply"}}, image.Entry{Form: image.LLVMBitcode, Triple: triple, Code: code})
	if err == nil {
		img, err = img.Sign(b.key)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, "bomb.wfn"), img.Encode(), 0o600)
}

// timedEngine keeps how long its longest Load took.
type timedEngine struct {
	abi.Engine
	longest *atomic.Int64 // µs
}

// timed is an engine whose loads are timed.
func (s *station) timed(e abi.Engine) abi.Engine { return timedEngine{e, &s.longestLoad} }

func (e timedEngine) Load(ctx context.Context, c abi.Code) (abi.Program, error) {
	t := time.Now()
	p, err := e.Engine.Load(ctx, c)
	for took := time.Since(t).Microseconds(); ; {
		old := e.longest.Load()
		if took <= old || e.longest.CompareAndSwap(old, took) {
			return p, err
		}
	}
}

// handleState answers what runs here, and what the longest load took, µs.
func (s *station) handleState() {
	s.el.Handle(idState, func(m fabric.Message) {
		m.From.Post(idAlloc, binary.LittleEndian.AppendUint64(nil, uint64(s.rt.Stats().Sizes.Running)<<32|uint64(s.longestLoad.Load())), nil)
	})
}

// handleMemory answers what wasm functions are charged, and what the process has that is its own.
func (s *station) handleMemory() {
	s.el.Handle(idMemory, func(m fabric.Message) {
		m.From.Post(idAlloc, binary.LittleEndian.AppendUint64(nil, s.wasm.Stats().Bytes>>20<<32|ownMiB()), nil)
	})
}

// ownMiB is the process's anonymous memory (RssAnon).
func ownMiB() uint64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	var kib uint64
	fmt.Sscan(rest, &kib)
	return kib >> 10
}

// victim watches a server while hostile functions are there.
type victim struct {
	*client
	running int
	loadUs  float64 // the server's longest load
	first   float64 // the longest until a large function had answered for the first time, ns
	stalled float64 // the longest that a Send was not answered, ns
	slice   float64 // the longest that a run went on that had been canceled, ns
}

// look asks how the server is.
func (v *victim) look() error {
	t := time.Now()
	if err := v.ask(v.eps[0], idState, nil); err != nil {
		return err
	}
	v.stalled = max(v.stalled, float64(time.Since(t)))
	state := v.last.Load()
	v.running, v.loadUs = int(state>>32), float64(state&(1<<32-1))
	return nil
}

// watch looks every millisecond until done says so, which bound bounds.
func (v *victim) watch(bound time.Duration, done func() bool) error {
	for end := time.Now().Add(bound); !done(); time.Sleep(time.Millisecond) {
		if err := v.look(); err != nil {
			return err
		}
		if time.Now().After(end) {
			return context.DeadlineExceeded
		}
	}
	return nil
}

// hostile runs functions that mean ill, and measures what others notice: how long a run goes on that is to stop, how long
// making code takes, how late a Send is answered meanwhile.
func (c *client) hostile() error {
	v := &victim{client: c}
	names := []string{"large"}
	if c.spec.Code.Form == "bitcode" {
		names = append(names, "bomb")
	}
	for range c.hostileRounds() {
		for _, h := range hostile {
			names = append(names, h.name)
		}
	}
	for i, name := range names {
		c.say("hostile functions: "+name, float64(i)/float64(len(names)))
		if err := v.suffer(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := v.serves(); err != nil {
			return fmt.Errorf("after %s: %w", name, err)
		}
	}
	c.r.Set("slice_ms_max", v.slice/1e6)
	c.r.Set("compile_ms_max", max(v.loadUs/1e3, v.first/1e6))
	c.r.Set("stalled_ms_max", v.stalled/1e6)
	c.r.Set("functions", len(names))
	if c.spec.Code.Form != "wasm" {
		return nil
	}
	return c.neighbours()
}

func (c *client) hostileRounds() int { return cmp.Or(c.spec.Rounds, hostileRounds) }

// suffer runs one of them.
func (v *victim) suffer(name string) error {
	img, err := v.spec.image(name)
	if err != nil {
		return err
	}
	f, err := v.rt.PrepareAs(img, nil, v.spec.wish())
	if err != nil {
		return err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	payload := make([]byte, 4096)
	if name == "bomb" {
		payload = nil // so that it adds nothing itself
	}
	from := time.Now()
	fut, err := f.Start(ctx, []inject.Root{{To: v.eps[0], Payload: payload}}, inject.Options{})
	if err != nil {
		return err
	}
	if name == "spin" {
		return v.stop(fut)
	}
	ended := func() bool {
		select {
		case <-fut.Done():
			return true
		default:
			return false
		}
	}
	if err := v.watch(patience, ended); err != nil {
		return err
	}
	if name == "large" { // where it is the first run that waits for the code
		v.first = max(v.first, float64(time.Since(from)))
	}
	if name != "bomb" { // its better code is made in the background
		return nil
	}
	from = time.Now()
	return v.watch(patience, func() bool { return time.Since(from) > bombTime })
}

// stop cancels an endless run and waits for its end.
func (v *victim) stop(fut *inject.Future) error {
	if err := v.watch(patience, func() bool { return v.running > 0 }); err != nil {
		return err
	}
	from := time.Now()
	if err := v.watch(patience, func() bool { return time.Since(from) > runsFor }); err != nil {
		return err
	}
	fut.Cancel()
	for from = time.Now(); ; {
		if err := v.look(); err != nil {
			return err
		}
		if v.running == 0 {
			v.slice = max(v.slice, float64(time.Since(from)))
			return nil
		}
		if time.Since(from) > patience {
			return errors.New("it goes on though it was canceled")
		}
	}
}

// serves reports whether the server still runs what is no trouble.
func (v *victim) serves() error { return v.servesIn(v.ctx) }

func (v *victim) servesIn(ctx context.Context) error {
	img, err := v.spec.image("echo")
	if err != nil {
		return err
	}
	f, err := v.rt.PrepareAs(img, nil, v.spec.wish())
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := f.Do(ctx, inject.Root{To: v.eps[0], Payload: []byte("still there")}, nil)
	if err == nil && string(got) != "still there" {
		err = fmt.Errorf("the server answers %q", got)
	}
	return err
}
