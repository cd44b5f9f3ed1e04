package wasm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/compiler"
	"github.com/wherry-fabric/wherry/internal/jail"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// compilerMark makes this test program a compiler process.
const compilerMark = "be-a-wasm-compiler"

// beCompiler compiles, or does what is wrong.
func beCompiler(how string) {
	err := errors.New("no such test")
	if how == "well" {
		err = ServeCompiler()
	} else if how == "escape" {
		err = serveCompiler(escape)
	} else if how == "mute" {
		_, err = io.Copy(io.Discard, os.NewFile(compiler.Descriptor, "requests")) // until its node ends it
	} else if conn, cerr := net.FileConn(os.NewFile(compiler.Descriptor, "requests")); cerr == nil {
		err = compiler.Serve(conn, compiler.Hello{Compiler: compilerName()}, func(compiler.Request) compiler.Answer {
			switch how {
			case "spin":
				for { //nolint // until it is killed
				}
			case "crash":
				os.Exit(3)
			case "lie":
				return compiler.Answer{Object: append([]byte(strings.Repeat("ab", 32)+"\n"), "no code"...)}
			}
			return compiler.Answer{Failed: how}
		}, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// escape tries, in place of compiling, what a confined process cannot do, on a thread that was there before and on one of its own.
func escape(*lane, []byte) compiler.Answer {
	var did []string
	try := func(what string, err error) {
		if !errors.Is(err, unix.EPERM) {
			did = append(did, fmt.Sprintf("%s: %v", what, err))
		}
	}
	attempts := func() {
		_, err := os.ReadFile("/etc/passwd")
		try("it read a file", err)
		try("it wrote a file", os.WriteFile("/dev/shm/wherry-escape", []byte("x"), 0o600))
		_, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		try("it has a socket", err)
		_, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		try("it has a Unix socket", err)
		try("it signalled its node", unix.Kill(os.Getppid(), 0))
		try("it began another program", unix.Exec("/bin/true", []string{"true"}, nil))
	}
	attempts()
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // the thread ends with it
		attempts()
		close(done)
	}()
	<-done
	return compiler.Answer{Failed: fmt.Sprintf("it tried, and did %q", did)}
}

// TestElsewhereConfined: the process that compiles wasm cannot open a file or a socket, start a program or signal another process; and it compiles.
func TestElsewhereConfined(t *testing.T) {
	if err := jail.Supported(); err != nil {
		t.Skip(err)
	}
	var said bytes.Buffer
	e := newEngine(t, Config{Compiler: compilerThat("escape"), Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err := large(t, e).Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "it tried, and did []") {
		t.Error(err)
	}
	if said.Len() > 0 {
		t.Errorf("the log says %s", said.String())
	}
}

func compilerThat(how string) []string { return []string{"/proc/self/exe", compilerMark, how} }

// large is a module that goes to a compiler process.
func large(t *testing.T, e *Engine) *Binding {
	t.Helper()
	wasm := chain(8, 500)
	p, err := e.Compile(context.Background(), sha256.Sum256(wasm), 1, wasm, abi.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return bind(t, p, "alice")
}

// TestElsewhere: a large module is compiled by another process, and runs; the cache has its code; a small one is compiled here.
func TestElsewhere(t *testing.T) {
	for what, dir := range map[string]string{"with a cache": t.TempDir(), "without": ""} {
		for round := range 2 {
			e := newEngine(t, Config{CacheDir: dir, Compiler: compilerThat("well")})
			if st, err := once(t, large(t, e), &fakeHost{}, order{}); st != abi.OK || err != nil {
				t.Fatal(what, st, err)
			}
			want := Stats{Compiled: 1, Elsewhere: 1}
			if dir != "" {
				want.CacheMisses = 1
				if round == 1 {
					want = Stats{CacheHits: 1}
				}
			}
			got := e.Stats()
			got.Stats, got.CodeBytes = want.Stats, 0
			if got != want {
				t.Errorf("%s, round %d: %+v, want %+v", what, round, got, want)
			}
			if got := value(t, bind(t, compile(t, e, "lab", abi.Limits{}), "alice"), order{op: 12}); got != 1 || e.Stats().Elsewhere != want.Elsewhere {
				t.Errorf("%s: a small function answers %d, %d were compiled elsewhere", what, got, e.Stats().Elsewhere)
			}
			if err := e.Close(); err != nil { // also waits for the cache's writer
				t.Error(err)
			}
		}
	}
}

// TestElsewhereFails: what a compiler process does wrong is the large function's error; others run.
func TestElsewhereFails(t *testing.T) {
	for how, want := range map[string]string{"spin": "takes too long", "crash": "crashed", "lie": "cannot be used", "the disk is full": "the disk is full"} {
		c := Config{CacheDir: t.TempDir(), Compiler: compilerThat(how)}
		if how == "spin" {
			c.CompileTime = 50 * time.Millisecond
		}
		e := newEngine(t, c)
		if err := large(t, e).Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", how, err)
		}
		if got := value(t, bind(t, compile(t, e, "lab", abi.Limits{}), "alice"), order{op: 12}); got != 1 {
			t.Errorf("%s: a small function answers %d", how, got)
		}
		if s := e.Stats(); s.Elsewhere != 0 || s.Compiled != 1 {
			t.Errorf("%s: %+v", how, s)
		}
	}
}

// TestElsewhereCanceled: who gives up is not held, neither whom the process works for nor who waits for the same function; the process ends.
func TestElsewhereCanceled(t *testing.T) {
	e := newEngine(t, Config{Compiler: compilerThat("spin"), CompileTime: time.Hour})
	b := large(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- b.Prepare(ctx) }()
	for len(b.program.variants[0].turn) == 0 { // until the first one has it
		time.Sleep(time.Millisecond)
	}
	if err := b.Prepare(canceled()); !errors.Is(err, context.Canceled) {
		t.Errorf("the second: %v", err)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestElsewhereMissing: where no compiler process can be started, functions that may take long to compile are refused, with the reason, and others run; once one can
// be started, they run too.
func TestElsewhereMissing(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	well := filepath.Join(t.TempDir(), "compiler")
	var said bytes.Buffer
	e := newEngine(t, Config{Compiler: []string{well}, Log: slog.New(slog.NewTextHandler(&said, nil))})
	b := large(t, e)
	if err := b.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), well) || !strings.Contains(err.Error(), "no compiler process") || !strings.Contains(said.String(), well) {
		t.Errorf("%v, and the log says %q", err, said.String())
	}
	if got := value(t, bind(t, compile(t, e, "lab", abi.Limits{}), "alice"), order{op: 12}); got != 1 {
		t.Errorf("a small function answers %d", got)
	}
	if s := e.Stats(); s.Compiled != 1 || s.Elsewhere != 0 {
		t.Errorf("%+v", s)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' %s well\n", self, compilerMark)
	if err := os.WriteFile(well, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if st, err := once(t, b, &fakeHost{}, order{}); st != abi.OK || err != nil || e.Stats().Elsewhere != 1 {
		t.Errorf("with a compiler: %v, %v, %+v", st, err, e.Stats())
	}
}

// TestMachineCodeIsCharged: machine code takes memory of whom it was made for, up to a share; it is given back when the function goes.
func TestMachineCodeIsCharged(t *testing.T) {
	e := newEngine(t, Config{CodeBytes: 96 << 20})
	small := compile(t, e, "lab", abi.Limits{})
	value(t, bind(t, small, "alice"), order{op: 12})
	_, before := e.machine.Usage()
	if before == 0 {
		t.Error("a small function is charged nothing")
	}
	made := 0
	var hers []*Binding
	for ; made < 100; made++ {
		wasm := append(chain(2, 500), 0, 2, 1, byte(made)) // a custom section: another identity
		p, err := e.Compile(t.Context(), sha256.Sum256(wasm), 1, wasm, abi.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		b := bind(t, p, "mallory")
		hers = append(hers, b)
		if err = b.Prepare(t.Context()); errors.Is(err, abi.ErrShareBusy) && strings.Contains(err.Error(), `"mallory"`) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if made < 10 || made > 50 {
		t.Errorf("%d functions of hers were compiled", made)
	}
	if err := large(t, e).Prepare(t.Context()); err != nil {
		t.Errorf("another principal's: %v", err)
	}
	_, full := e.machine.Usage()
	hers[0].Close()
	hers[0].program.Close()
	if _, now := e.machine.Usage(); now >= full {
		t.Errorf("%d bytes are charged, %d before one was closed", now, full)
	}
	if err := hers[made].Prepare(t.Context()); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
}

// converting is a module of functions that convert a number from float to integer and back: a byte each, which becomes a hundred and more of machine code.
func converting(functions, conversions int) []byte {
	const i32 = byte(wasmcode.I32)
	section := func(id byte, body ...byte) []byte { return append(leb([]byte{id}, uint32(len(body))), body...) }
	index, bodies := leb(nil, uint32(functions)), leb(nil, uint32(functions))
	for range functions {
		body := cat([]byte{0, 0x20, 0, 0xad}, bytes.Repeat([]byte{0xba, 0xb1}, conversions), []byte{0x1a}, num(0), []byte{0x0b})
		bodies = append(leb(bodies, uint32(len(body))), body...)
		index = append(index, 0)
	}
	entry := append([]byte{1, byte(len(abi.Entry))}, abi.Entry...)
	return cat([]byte("\x00asm\x01\x00\x00\x00"), section(1, 1, 0x60, 2, i32, i32, 1, i32), section(3, index...), section(5, 1, 0, 1),
		section(7, append(entry, 0, 0)...), section(10, bodies...))
}

// TestMachineCodeIsChargedWhole: whatever a function compiles to, here or in a process, is charged, also where a byte of it becomes a hundred.
func TestMachineCodeIsChargedWhole(t *testing.T) {
	for what, wasm := range map[string][]byte{"here": converting(4, 120), "in a process": converting(8, 2000)} {
		e := newEngine(t, Config{CacheDir: t.TempDir(), Compiler: compilerThat("well"), CompileTime: time.Minute})
		p, err := e.Compile(t.Context(), sha256.Sum256(wasm), 1, wasm, abi.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if err := bind(t, p, "mallory").Prepare(t.Context()); err != nil {
			t.Fatal(what, err)
		}
		_, charged := e.machine.Usage()
		if s := e.Stats(); s.Compiled != 1 || (s.Elsewhere == 1) != (what == "in a process") {
			t.Errorf("%s: %+v", what, s)
		}
		e.cache.Close() // it has written what was made
		const aside = 1 << 10
		if made := uint64(e.Disk().Bytes); charged+aside < made || made < 50*uint64(len(wasm)) {
			t.Errorf("%s: %d bytes of machine code, of %d of wasm, are charged with %d", what, made, len(wasm), charged)
		}
	}
}

// executable is how much anonymous memory of this process is executable.
func executable(t *testing.T) (bytes int64) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		if f := strings.Fields(line); len(f) == 5 && f[1][2] == 'x' { // five: no file, and no name
			if _, err := fmt.Sscanf(f[0], "%x-%x", &from, &to); err != nil {
				t.Fatal(line, err)
			}
			bytes += int64(to - from)
		}
	}
	return bytes
}

// settled is executable once the code of other tests has gone, by its finalizers.
func settled(t *testing.T) (bytes int64) {
	t.Helper()
	bytes = executable(t) + 1
	before := int64(0)
	for end := time.Now().Add(time.Minute); before != bytes; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("machine code comes and goes for a minute: %d bytes, and %d before", bytes, before)
		}
		runtime.GC()
		bytes, before = executable(t), bytes
	}
	return bytes
}

// TestMachineCodeGoes: of ever more functions whose machine code is given up, also in a process that has much else in its heap and so collects garbage seldom, little stays in memory that
// nobody is charged for.
func TestMachineCodeGoes(t *testing.T) {
	const most, conversions, functions, heap = 16 << 20, 1000, 16, 256 << 20
	e := newEngine(t, Config{CodeBytes: most, Compiler: compilerThat("well"), CompileTime: time.Minute})
	before := settled(t)
	ballast := bytes.Repeat([]byte{1}, heap)
	runtime.GC()
	made, left := uint64(0), int64(0)
	for i := range functions {
		wasm := converting(8, conversions+i)
		p, err := e.Compile(t.Context(), sha256.Sum256(wasm), 1, wasm, abi.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := p.Bind("mallory", nil)
		if err == nil {
			err = b.Prepare(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		charged := e.Stats().CodeBytes
		made += charged
		left = max(left, executable(t)-before-int64(charged))
		b.Close()
		p.Close()
	}
	if made < 3*most/2 {
		t.Errorf("only %d bytes were made: this test proves nothing", made)
	}
	if left > most/2 {
		t.Errorf("the process had %d bytes of machine code beside what was charged, of %d", left, most)
	}
	runtime.KeepAlive(ballast)
}

// TestMachineCodeOfAllIsBounded: however many principals there are, each below its share, the machine code of all of them together is no more than CodeBytes,
// as it is charged and as the process has it.
func TestMachineCodeOfAllIsBounded(t *testing.T) {
	most, conversions := 24<<20, 1500
	if testing.Short() { // the race detector makes compiling long
		most, conversions = most/4, conversions/4
	}
	const principals, aside = 16, 16 << 10 // aside: whole pages, and how a function is entered
	e := newEngine(t, Config{CodeBytes: uint64(most), Compiler: compilerThat("well"), CompileTime: time.Minute})
	before := settled(t)
	taken, refused := 0, 0
	for i := range principals {
		wasm := converting(8, conversions+i)
		p, err := e.Compile(t.Context(), sha256.Sum256(wasm), 1, wasm, abi.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if err := bind(t, p, fmt.Sprint("principal", i)).Prepare(t.Context()); err == nil {
			taken++
		} else if refused++; !errors.Is(err, abi.ErrEngineBusy) || errors.Is(err, abi.ErrShareBusy) || !strings.Contains(err.Error(), "for all") {
			t.Fatalf("principal %d: %v", i, err)
		}
		charged := e.Stats().CodeBytes
		if has := executable(t) - before; charged > uint64(most) || has > int64(charged)+int64(taken)*aside {
			t.Fatalf("with %d functions %d bytes are charged, of %d, and the process has %d", taken, charged, most, has)
		}
	}
	if taken < 4 || refused < 4 {
		t.Errorf("%d functions were taken and %d refused: this test proves nothing", taken, refused)
	}
	if has := executable(t) - before; has < int64(most)/2 {
		t.Errorf("the process has %d bytes of machine code: this test proves nothing", has)
	}
}

// TestNothingCompiledInVain: where machine code finds no room, that is said before it is made if its module alone is more than the room, and else
// once it was made for the first time; it is not made again for the same answer.
func TestNothingCompiledInVain(t *testing.T) {
	wasm := converting(8, 2000)
	prepare := func(e *Engine) func() error {
		p, err := e.Compile(t.Context(), sha256.Sum256(wasm), 1, wasm, abi.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		b := bind(t, p, "mallory")
		return func() error { return b.Prepare(t.Context()) }
	}
	broken := Config{Compiler: compilerThat("it must not be asked")}
	small := newEngine(t, Config{CodeBytes: uint64(len(wasm)), Compiler: broken.Compiler})
	if err := prepare(small)(); !errors.Is(err, abi.ErrShareBusy) {
		t.Errorf("without room for as much as the module: %v", err)
	}
	e := newEngine(t, Config{CodeBytes: 8 * uint64(len(wasm)), Compiler: compilerThat("well"), CompileTime: time.Minute})
	again := prepare(e)
	if err := again(); !errors.Is(err, abi.ErrShareBusy) {
		t.Fatalf("with room for an eighth of the code: %v", err)
	}
	if programs, bytes := e.machine.Usage(); programs != 0 || bytes != 0 {
		t.Errorf("%d programs with %d bytes are charged that are not there", programs, bytes)
	}
	e.compilers.pool.Close()
	e.compilers = newCompilers(broken)
	if err := again(); !errors.Is(err, abi.ErrShareBusy) {
		t.Errorf("once more: %v", err)
	}
}

// TestElsewhereHeeds: who waits for the first compiler process to start, or for whoever waits for it, stops when nobody wants the module any more; the next one tries again.
func TestElsewhereHeeds(t *testing.T) {
	e := newEngine(t, Config{Compiler: compilerThat("mute")})
	first, stop := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() { waited <- e.compilers.ready(first, e.config.Log) }()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := e.compilers.ready(gone, e.config.Log); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	stop()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if e.compilers.works {
		t.Error("that nobody waited is taken for a process that works")
	}
}
