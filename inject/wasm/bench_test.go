package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// quietHost takes replies without keeping them, so that benchmarks see only the engine.
type quietHost struct {
	fakeHost
	word uint64
}

func (h *quietHost) Reply(data []byte) abi.Status {
	if len(data) == 8 {
		h.word = binary.LittleEndian.Uint64(data)
	}
	return abi.OK
}

// samples are timings of one thing; their median is what a noisy machine leaves of it.
type samples []time.Duration

func (s samples) median() float64 {
	slices.Sort(s)
	return float64(s[len(s)/2])
}

// BenchmarkRun is a cached run with 8 bytes in and out: nothing may be allocated.
func BenchmarkRun(b *testing.B) {
	e := newEngine(b, Config{})
	bd := bind(b, compile(b, e, "echo", abi.Limits{}), "alice")
	h := &quietHost{}
	run := &Run{Payload: make([]byte, 8), Host: h}
	b.Run("instance", func(b *testing.B) {
		in := acquire(b, bd)
		defer in.Release()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := in.Run(run); err != nil {
				b.Fatal(err)
			}
		}
		if n := testing.AllocsPerRun(1000, func() { in.Run(run) }); n != 0 {
			b.Fatalf("%v allocations a run", n)
		}
	})
	b.Run("pool", func(b *testing.B) {
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			in, err := bd.Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := in.Run(run); err != nil {
				b.Fatal(err)
			}
			in.Release()
		}
	})
}

// BenchmarkFirstUse is decode, instrumentation, compilation, instantiation and one run.
func BenchmarkFirstUse(b *testing.B) {
	for _, name := range []string{"echo", "chase", "spin", "lab"} {
		for _, cached := range []bool{false, true} {
			label := name
			c := Config{}
			if cached {
				label += "/disk"
				c.CacheDir = b.TempDir()
			}
			b.Run(label, func(b *testing.B) {
				e := newEngine(b, c)
				wasm := code(b, name)
				id := sha256.Sum256(wasm)
				run := &Run{Payload: make([]byte, 32), Host: &quietHost{}}
				if name == "lab" {
					run.Payload = order{op: 8}.payload()
				}
				var took samples
				for b.Loop() {
					start := time.Now()
					p, err := e.Compile(context.Background(), id, 1, wasm, abi.Limits{})
					if err != nil {
						b.Fatal(err)
					}
					bd, _ := p.Bind("alice", nil)
					in, err := bd.Acquire(context.Background())
					if err != nil {
						b.Fatal(err)
					}
					if _, err := in.Run(run); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(start))
					in.Release()
					bd.Close()
					p.Close()
				}
				b.ReportMetric(took.median()/1e3, "median-µs")
			})
		}
	}
}

// plain is a module as it came, run by wazero without any of ours.
func plain(b testing.TB, wasm []byte) (call func(payload []byte) uint64) {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithCoreFeatures(features))
	b.Cleanup(func() { rt.Close(ctx) })
	var got uint64
	hb := rt.NewHostModuleBuilder(abi.Module)
	for _, c := range hostCalls() {
		hb.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, st []uint64) {
			if c.name == "reply" {
				v, _ := m.Memory().ReadUint32Le(uint32(st[0]))
				got, st[0] = uint64(v), 0
			}
		}), apiTypes(c.params), apiTypes(c.results)).Export(c.name)
	}
	if _, err := hb.Instantiate(ctx); err != nil {
		b.Fatal(err)
	}
	m, err := rt.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		b.Fatal(err)
	}
	const at = 64 << 10
	f := m.ExportedFunction(abi.Entry)
	return func(payload []byte) uint64 {
		m.Memory().Write(at, payload)
		st := []uint64{at, uint64(len(payload))}
		if err := f.CallWithStack(ctx, st); err != nil {
			b.Fatal(err)
		}
		return got
	}
}

// BenchmarkLoop compares loops instrumented and plain, interleaved.
func BenchmarkLoop(b *testing.B) {
	e := newEngine(b, Config{})
	p := compile(b, e, "spin", abi.Limits{RunTime: time.Minute})
	in := acquire(b, bind(b, p, "alice"))
	defer in.Release()
	ro := acquire(b, bind(b, p, "alice", newSegment(b, 64<<10).window(false)))
	defer ro.Release()
	native := plain(b, code(b, "spin"))
	const rounds = 1 << 20
	for kind, name := range []string{"xorshift", "call", "store"} {
		b.Run(name, func(b *testing.B) {
			var payload []byte
			payload = binary.LittleEndian.AppendUint32(payload, uint32(kind))
			payload = binary.LittleEndian.AppendUint32(payload, rounds)
			var fueled, checked, bare samples
			run := &Run{Payload: payload, Host: &quietHost{}}
			for b.Loop() {
				t0 := time.Now()
				in.Run(run)
				t1 := time.Now()
				ro.Run(run)
				t2 := time.Now()
				native(payload)
				fueled, checked, bare = append(fueled, t1.Sub(t0)), append(checked, t2.Sub(t1)), append(bare, time.Since(t2))
			}
			per := func(s samples) float64 { return s.median() / rounds }
			b.ReportMetric(per(bare), "plain-ns/round")
			b.ReportMetric(per(fueled), "fueled-ns/round")
			b.ReportMetric(per(checked), "checked-ns/round")
			b.ReportMetric(per(fueled)/per(bare), "fueled/plain")
			b.ReportMetric(per(checked)/per(bare), "checked/plain")
		})
	}
}

// cycle fills a table with one random cycle through all of it.
func cycle(table []uint32) {
	for i := range table {
		table[i] = uint32(i)
	}
	r := rand.New(rand.NewSource(1))
	for i := len(table) - 1; i > 0; i-- {
		j := r.Intn(i)
		table[i], table[j] = table[j], table[i]
	}
}

// BenchmarkChase follows a chain through a window, against the same in Go.
func BenchmarkChase(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"256KiB", 256 << 10}, {"64MiB", 64 << 20}} {
		b.Run(size.name, func(b *testing.B) {
			e := newEngine(b, Config{})
			seg := newSegment(b, size.bytes)
			table := seg.words()
			cycle(table)
			p := compile(b, e, "chase", abi.Limits{RunTime: time.Minute})
			in := acquire(b, bind(b, p, "alice", seg.window(false)))
			defer in.Release()
			const hops = 1 << 18
			var inWasm, inGo samples
			at := uint32(0)
			h := &fakeHost{}
			for b.Loop() {
				payload := binary.LittleEndian.AppendUint32(nil, at)
				payload = binary.LittleEndian.AppendUint32(payload, hops)
				t0 := time.Now()
				if st, err := in.Run(&Run{Payload: payload, Host: h}); err != nil || st != 0 {
					b.Fatal(st, err)
				}
				t1 := time.Now()
				g := at
				for range hops {
					g = table[g]
				}
				inGo, inWasm = append(inGo, time.Since(t1)), append(inWasm, t1.Sub(t0))
				if got := binary.LittleEndian.Uint32(h.reply); got != g {
					b.Fatalf("wasm ends at %d, Go at %d", got, g)
				}
				at = g
			}
			per := func(s samples) float64 { return s.median() / hops }
			b.ReportMetric(per(inWasm), "wasm-ns/hop")
			b.ReportMetric(per(inGo), "go-ns/hop")
			b.ReportMetric(per(inWasm)/per(inGo), "wasm/go")
		})
	}
}

// BenchmarkStop asks an endless loop to stop after 20 ms, and counts what it
// took beyond that, and how long the collector's cycles took meanwhile.
func BenchmarkStop(b *testing.B) {
	e := newEngine(b, Config{})
	bd := bind(b, compile(b, e, "lab", abi.Limits{RunTime: time.Minute}), "alice")
	for _, o := range []order{{op: 3}, {op: 14}, {op: 13, a: 1 << 16, b: 8 << 20}} {
		b.Run(fmt.Sprint("op", o.op), func(b *testing.B) {
			var late, pause time.Duration
			var ticks int64
			for b.Loop() {
				start := time.Now()
				h := &fakeHost{stop: func() error {
					if time.Since(start) > 20*time.Millisecond {
						return context.DeadlineExceeded
					}
					return nil
				}}
				done := make(chan struct{})
				go func() {
					once(b, bd, h, o)
					late += time.Since(start) - 20*time.Millisecond
					close(done)
				}()
				time.Sleep(5 * time.Millisecond)
				gc := time.Now()
				runtime.GC()
				pause += time.Since(gc)
				<-done
				ticks += h.ticks.Load()
			}
			b.ReportMetric(float64(late.Microseconds())/float64(b.N), "late-µs")
			b.ReportMetric(float64(pause.Microseconds())/float64(b.N), "gc-µs")
			b.ReportMetric(float64(ticks)/float64(b.N), "slices/20ms")
		})
	}
}
