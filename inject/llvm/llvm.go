// Package llvm makes objects of functions that come as LLVM bitcode. It asks compiler processes (internal/compiler, cmd/wherry-llvm)
// and keeps what they made, in memory and on disk: a function is compiled once for a machine.
//
//	c := llvm.New(llvm.Config{CacheDir: dir})
//	defer c.Close()
//	if _, _, _, err := c.Target(); err != nil { … } // why nothing can be compiled here
//	object, best, err := c.Object(ctx, llvm.Request{Bitcode: code, Triple: triple, Imports: []string{"reply"}, Signer: key, Principal: "ada"})
//
// There are two tiers. The first is made soon: the code is as the sender simplified it, and FastISel makes instructions of it, in a third of the time
// or less. The best is what -O3 for this processor makes. Object gives the best where there is one already, and else what Request.Best asks for.
// Only the best is written to disk: it is made a moment after the first run, and the first use is in a hurry.
//
// An object is known by everything that it depends on: the bitcode, the host calls that it may use, the processor and its features, its tier, the version of LLVM
// and that of what wherry-llvm does with a module. It does not depend on whom it was compiled for: a request for what was
// compiled before is charged nothing and does not wait.
package llvm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/internal/codecache"
	"github.com/wherry-fabric/wherry/internal/compiler"
)

const (
	// Program is what compiles.
	Program = "wherry-llvm"
	// DefaultCacheBytes bounds the objects on disk: some 30,000 functions of a few KiB with their larger relatives.
	DefaultCacheBytes = 256 << 20
	// DefaultMemoryBytes bounds the objects in memory. A program that is loaded needs its object no more.
	DefaultMemoryBytes = 16 << 20
	// symbolPrefix is before a host call's name in an object, as sdk/c/wherry.h has it.
	symbolPrefix = "wherry_"
)

// Config says how to compile. The zero value compiles with the wherry-llvm that is found, and keeps objects in memory only.
type Config struct {
	Command      []string      // starts wherry-llvm; empty: the one beside this program, then on PATH
	Library      string        // path of libLLVM; "": the newest that is known
	Unconfined   bool          // compilers are not locked down, for machines that cannot: what takes one over can do what this process's user can
	CacheDir     string        // for objects; "": none on disk
	CacheBytes   int64         // of objects on disk; 0: DefaultCacheBytes
	MemoryBytes  int64         // of objects in memory; 0: DefaultMemoryBytes
	MaxProcesses int           // that compile at once; 0: compiler.DefaultProcesses
	Deadline     time.Duration // processor time of one compile; 0: compiler.DefaultDeadline
	Log          *slog.Logger  // nil: nothing is logged
}

// Request is one function to compile.
type Request struct {
	Bitcode   []byte
	Triple    string   // that the bitcode is for
	Imports   []string // host calls that the manifest lists: "reply"
	Constants []byte   // of a derived function
	Signer    []byte   // the key that vouches for the code
	Principal string   // is charged
	Best      bool     // however long that takes; else the first tier will do
}

// Error says what is wrong with bitcode.
type Error struct{ Reason string }

func (e *Error) Error() string { return "bitcode is refused: " + e.Reason }

// ErrNoProgram says that wherry-llvm is missing.
var ErrNoProgram = errors.New(Program + " is neither beside this program nor on PATH; it is built with wherry (make build)")

// Stats counts since New.
type Stats struct {
	Compiled  uint64 // objects that were made
	FromDisk  uint64 // and found on disk
	FromRAM   uint64 // and in memory
	Rejected  uint64 // files on disk that were damaged
	Processes uint64 // compilers that were started
}

// Compiler makes objects. Its methods may be called from any goroutine.
type Compiler struct {
	config Config
	pool   *compiler.Pool
	lost   error // why there is no pool
	disk   *codecache.Cache

	mu    sync.Mutex
	hello compiler.Hello // once it is known
	ram   memory
	under map[string]*making // by key
	stats Stats
}

// making is a compile that is under way, for all callers that want its object.
type making struct {
	done   chan struct{}
	object []byte
	err    error
}

// New makes a Compiler. It starts nothing: the first call of Target or Object does.
func New(c Config) *Compiler {
	if c.CacheBytes <= 0 {
		c.CacheBytes = DefaultCacheBytes
	}
	if c.MemoryBytes <= 0 {
		c.MemoryBytes = DefaultMemoryBytes
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	l := &Compiler{config: c, ram: memory{limit: c.MemoryBytes}, under: map[string]*making{}}
	command, err := c.command()
	if err != nil {
		l.lost = err
		return l
	}
	if c.Unconfined {
		command = append(command, "--unconfined")
	}
	if c.Library != "" {
		command = append(command, "--library", c.Library)
	}
	l.pool = compiler.NewPool(compiler.Config{Command: command, Processes: c.MaxProcesses, Deadline: c.Deadline})
	if c.CacheDir != "" {
		kind := codecache.Kind{Magic: "wherryLO", Suffix: ".wlo", Log: "llvm"}
		if l.disk, err = codecache.Open(c.CacheDir, c.CacheBytes, kind, c.Log); err != nil {
			c.Log.Warn("llvm: objects are kept in memory only", "err", err)
		}
	}
	return l
}

// command starts wherry-llvm: the one that is named, or that is found.
func (c *Config) command() ([]string, error) {
	if len(c.Command) > 0 {
		return slices.Clone(c.Command), nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), Program)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return []string{beside}, nil
		}
	}
	path, err := exec.LookPath(Program)
	if err != nil {
		return nil, ErrNoProgram
	}
	return []string{path}, nil
}

// Target is what objects are made for, this machine: the triple, its processor and the features that it has, as LLVM names them. The
// error says why nothing can be compiled here.
func (l *Compiler) Target() (triple, cpu string, features []string, err error) {
	h, err := l.greet()
	if err != nil {
		return "", "", nil, err
	}
	for f := range strings.SplitSeq(h.Features, ",") {
		if name, has := strings.CutPrefix(f, "+"); has {
			features = append(features, name)
		}
	}
	slices.Sort(features)
	return h.Triple, h.CPU, slices.Compact(features), nil
}

// Version is the compiler's: "LLVM 22.1.8".
func (l *Compiler) Version() (string, error) {
	h, err := l.greet()
	return h.Compiler, err
}

func (l *Compiler) greet() (compiler.Hello, error) {
	if l.lost != nil {
		return compiler.Hello{}, l.lost
	}
	l.mu.Lock()
	h := l.hello
	l.mu.Unlock()
	if h.Version != 0 {
		return h, nil
	}
	h, err := l.pool.Hello(context.Background())
	if err == nil && h.Why != "" {
		err = errors.New(h.Why)
	}
	if err != nil {
		return compiler.Hello{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hello = h
	return h, nil
}

// Stats are a snapshot.
func (l *Compiler) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	if l.pool != nil {
		s.Processes = l.pool.Started()
	}
	return s
}

// Object gives a relocatable ELF object for Target, and says whether it is of the best tier. It leaves undefined host calls only, of those
// that Imports lists. The bytes are the caller's. An *Error is final; another error may not come again.
func (l *Compiler) Object(ctx context.Context, r Request) (object []byte, best bool, err error) {
	h, err := l.greet()
	if err != nil {
		return nil, false, err
	}
	if want, here := processor(r.Triple), processor(h.Triple); want != here {
		return nil, false, &Error{fmt.Sprintf("it is for %s, this element is %s", r.Triple, h.Triple)}
	}
	if !r.Best {
		if object, ok := l.kept(keyOf(h, r, true), true); ok {
			return bytes.Clone(object), true, nil
		}
	}
	object, err = l.object(ctx, h, r)
	return bytes.Clone(object), r.Best, err
}

// Check says what is wrong with bitcode for any processor, an *Error, by making an object of it; another error says why it could not be checked. The object's code is not the best.
func (l *Compiler) Check(ctx context.Context, r Request) (object []byte, err error) {
	if _, err := l.greet(); err != nil {
		return nil, err
	}
	return l.compile(ctx, r, r.Triple)
}

// kept is an object that is in memory or, if it is of the best tier, on disk.
func (l *Compiler) kept(key string, best bool) ([]byte, bool) {
	l.mu.Lock()
	object, ok := l.ram.get(key)
	if ok {
		l.stats.FromRAM++
	}
	l.mu.Unlock()
	if !ok && best {
		if object, ok = l.fromDisk(key); ok {
			l.mu.Lock()
			l.ram.put(key, object)
			l.mu.Unlock()
		}
	}
	return object, ok
}

// object gives an object of one tier, that others share.
func (l *Compiler) object(ctx context.Context, h compiler.Hello, r Request) ([]byte, error) {
	key := keyOf(h, r, r.Best)
	for {
		if object, ok := l.kept(key, r.Best); ok {
			return object, nil
		}
		l.mu.Lock()
		if object, ok := l.ram.get(key); ok { // it was just made
			l.mu.Unlock()
			return object, nil
		}
		m := l.under[key]
		if m == nil {
			m = &making{done: make(chan struct{})}
			l.under[key] = m
			l.mu.Unlock()
			l.make(ctx, m, key, r)
			return m.object, m.err
		}
		l.mu.Unlock()
		select {
		case <-m.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		var refused *Error
		if m.err == nil || errors.As(m.err, &refused) {
			return m.object, m.err
		}
		// The caller that had it compiled gave up, or met a limit of its own: that says nothing about this request.
	}
}

// processor is the first part of a triple, under LLVM's name for it.
func processor(triple string) string {
	arch, _, _ := strings.Cut(triple, "-")
	switch arch {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return arch
}

// make has an object compiled, and keeps it.
func (l *Compiler) make(ctx context.Context, m *making, key string, r Request) {
	m.object, m.err = l.compile(ctx, r, "")
	if m.err == nil && l.disk != nil && r.Best {
		l.disk.Publish(codecache.Entry{Key: key, Name: "object", Data: m.object})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.err == nil {
		l.ram.put(key, m.object)
	}
	delete(l.under, key)
	close(m.done)
}

func (l *Compiler) fromDisk(key string) ([]byte, bool) {
	if l.disk == nil {
		return nil, false
	}
	e, state := l.disk.Load(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case codecache.Good:
		l.stats.FromDisk++
		return e.Data, true
	case codecache.Damaged:
		l.stats.Rejected++
	}
	return nil, false
}

// compile makes an object for a machine, this one if no triple says which.
func (l *Compiler) compile(ctx context.Context, r Request, triple string) ([]byte, error) {
	object, err := l.pool.Compile(ctx, compiler.Job{
		Principal: r.Principal,
		Signer:    string(r.Signer),
		Request:   compiler.Request{Triple: triple, Imports: symbols(r.Imports), Fast: !r.Best, Constants: r.Constants, Code: r.Bitcode},
	})
	var refused *compiler.RefusedError
	switch {
	case errors.As(err, &refused):
		return nil, &Error{refused.Reason}
	case errors.Is(err, compiler.ErrDeadline):
		return nil, fmt.Errorf("%w; simplify the function, or ask whoever runs the element to allow more (compile_time)", err)
	case err != nil:
		return nil, fmt.Errorf("compiling bitcode: %w", err)
	}
	l.mu.Lock()
	l.stats.Compiled++
	l.mu.Unlock()
	return object, nil
}

// symbols are the names under which objects know host calls.
func symbols(imports []string) []string {
	var names []string
	for _, name := range imports {
		names = append(names, symbolPrefix+name)
	}
	return names
}

// keyOf names everything that an object depends on. The signer is part of it, for a compiler that has been taken over by one signer's bitcode
// can answer with any object. Each part is preceded by its length, so that no two requests look alike.
func keyOf(h compiler.Hello, r Request, best bool) string {
	sum := sha256.New()
	imports := slices.Sorted(slices.Values(r.Imports))
	parts := append([]string{h.Compiler, compiler.Revision, h.Triple, h.CPU, h.Features, strconv.FormatBool(best), string(r.Signer), string(r.Constants), string(r.Bitcode)}, imports...)
	for _, p := range parts {
		fmt.Fprintf(sum, "%d:", len(p))
		sum.Write([]byte(p))
	}
	return hex.EncodeToString(sum.Sum(nil)[:20])
}

// Close ends all compiles and processes, and waits for what is being written to disk.
func (l *Compiler) Close() error {
	if l.lost != nil {
		return nil
	}
	err := l.pool.Close()
	if l.disk != nil {
		l.disk.Close()
	}
	return err
}
