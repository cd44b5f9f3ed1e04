package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/wherry-fabric/wherry/inject/wasm/internal/shelf"
	"github.com/wherry-fabric/wherry/internal/compiler"
	"github.com/wherry-fabric/wherry/internal/jail"
)

// What may take long to compile is compiled in a process that can be killed (Config.Compiler, ServeCompiler), and comes back as the file that
// wazero would have written: the engine has wazero load that. The process is locked down (internal/jail): it has no way to files, sockets or other processes.
// What is compiled here is wasmcode's Quick: at most 20 ms.

// compilers are an engine's compiler processes.
type compilers struct {
	pool *compiler.Pool

	turn  chan struct{} // has room for the one goroutine that looks at the rest, or tries
	works bool          // one was started
}

func newCompilers(c Config) *compilers {
	if len(c.Compiler) == 0 {
		return nil
	}
	return &compilers{turn: make(chan struct{}, 1), pool: compiler.NewPool(compiler.Config{Command: c.Compiler, Deadline: c.CompileTime, NoSpare: true})}
}

// ready says why no compiler process can be started; nil: one was. The context's end ends the wait for it.
func (c *compilers) ready(ctx context.Context, log *slog.Logger) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("while a compiler process starts: %w", context.Cause(ctx))
	}
	defer func() { <-c.turn }()
	if c.works {
		return nil
	}
	err := c.try(ctx, log)
	c.works = err == nil
	if ctx.Err() != nil {
		return fmt.Errorf("while a compiler process starts: %w", context.Cause(ctx))
	}
	return err
}

// try starts a process, and says why it is of no use.
func (c *compilers) try(ctx context.Context, log *slog.Logger) error {
	h, err := c.pool.Hello(ctx)
	switch {
	case err != nil:
		return err
	case h.Why != "":
		return errors.New(h.Why)
	case h.Compiler != compilerName():
		return fmt.Errorf("it is %q, and this program has %q", h.Compiler, compilerName())
	}
	if h.Loose != "" {
		log.Warn("wasm: compiler processes are not confined", "why", h.Loose)
	}
	return nil
}

// compileElsewhere has a module compiled, charged to a principal. The context's end ends that.
func (e *Engine) compileElsewhere(ctx context.Context, principal string, code []byte) (shelf.Code, error) {
	if err := e.compilers.ready(ctx, e.config.Log); err != nil {
		return shelf.Code{}, e.noCompiler(ctx, err)
	}
	made, err := e.compilers.pool.Compile(ctx, compiler.Job{Principal: principal, Request: compiler.Request{Code: code}})
	var refused *compiler.RefusedError
	switch {
	case errors.As(err, &refused):
		return shelf.Code{}, &CodeError{refused}
	case errors.Is(err, compiler.ErrDeadline):
		return shelf.Code{}, &CodeError{fmt.Errorf("%w; split its largest functions, or the function", err)}
	case err != nil:
		return shelf.Code{}, fmt.Errorf("wasm: compiling %d bytes: %w", len(code), err)
	}
	name, data, ok := bytes.Cut(made, []byte{'\n'})
	if !ok {
		return shelf.Code{}, fmt.Errorf("wasm: the compiler process answered %d bytes that are no code", len(made))
	}
	return shelf.Code{Name: string(name), Data: data}, nil
}

// noCompiler is the error of a function that would take long to compile where no process can be started for it. The log says it to the operator.
func (e *Engine) noCompiler(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("wasm: %w", why)
	}
	e.config.Log.Warn("wasm: no compiler process can be started, so functions that take long to compile are refused", "command", e.config.Compiler, "why", why)
	return fmt.Errorf("wasm: no compiler process can be started here (%q: %w), and nothing else compiles a function that may take longer than milliseconds: see that the node may start processes and has memory, or make the function smaller",
		e.config.Compiler, why)
}

// compilerName is what both sides must be.
func compilerName() string { return "wazero " + wazeroVersion }

// ServeCompiler makes this process one of those that Config.Compiler names, until the socket that it finds as compiler.Descriptor ends.
func ServeCompiler() error { return serveCompiler((*lane).answer) }

func serveCompiler(answer func(*lane, []byte) compiler.Answer) error {
	socket := os.NewFile(compiler.Descriptor, "requests")
	conn, err := net.FileConn(socket)
	if err != nil {
		return fmt.Errorf("wasm: descriptor %d is no socket: a node starts this (%w)", compiler.Descriptor, err)
	}
	socket.Close()
	hello := compiler.Hello{Compiler: compilerName()}
	if kind, why := kind(false); kind != kindCompiler {
		hello.Why = why
	}
	l, err := newLane(kindCompiler, true)
	if err != nil {
		hello.Why = err.Error()
	} else {
		defer l.close()
	}
	// wazero makes executable what it compiled, and nothing of it runs here. Where there are no filters, compiling here is still better than in the node.
	if _, err := jail.Enter(true); err != nil {
		hello.Loose = err.Error()
	}
	return compiler.Serve(conn, hello, func(r compiler.Request) compiler.Answer {
		if hello.Why != "" {
			return compiler.Answer{Failed: hello.Why}
		}
		return answer(l, r.Code)
	}, nil)
}

// answer compiles a module, and gives the file that wazero would have written: its name, a line's end, its content.
func (l *lane) answer(code []byte) compiler.Answer {
	c, made, anew, err := l.compile(code, shelf.Code{})
	if err != nil {
		var bad *CodeError
		if errors.As(err, &bad) {
			err = bad.Err
		}
		return compiler.Answer{Refused: err.Error()}
	}
	_ = c.Close(context.Background()) // it frees code that nothing runs
	if !anew {
		return compiler.Answer{Failed: "wazero made no code"}
	}
	return compiler.Answer{Object: append([]byte(made.Name+"\n"), made.Data...)}
}
