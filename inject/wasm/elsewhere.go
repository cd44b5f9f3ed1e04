package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/wherry-fabric/wherry/internal/codecache"
	"github.com/wherry-fabric/wherry/internal/compiler"
)

// What may take long to compile is compiled in a process that can be killed (Config.Compiler, ServeCompiler), and comes back as the file that
// wazero would have written: the engine stages that and has wazero load it. What is compiled here is wasmcode's Quick: at most some 10 ms.

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
func (c *compilers) ready(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("while a compiler process starts: %w", context.Cause(ctx))
	}
	defer func() { <-c.turn }()
	if c.works {
		return nil
	}
	err := c.try(ctx)
	c.works = err == nil
	if ctx.Err() != nil {
		return fmt.Errorf("while a compiler process starts: %w", context.Cause(ctx))
	}
	return err
}

// try starts a process, and says why it is of no use.
func (c *compilers) try(ctx context.Context) error {
	h, err := c.pool.Hello(ctx)
	switch {
	case err != nil:
		return err
	case h.Why != "":
		return errors.New(h.Why)
	case h.Compiler != compilerName():
		return fmt.Errorf("it is %q, and this program has %q", h.Compiler, compilerName())
	}
	return nil
}

// compileElsewhere has a module compiled, charged to a principal. The context's end ends that.
func (e *Engine) compileElsewhere(ctx context.Context, principal, key string, code []byte) (codecache.Entry, error) {
	if err := e.compilers.ready(ctx); err != nil {
		return codecache.Entry{}, e.noCompiler(ctx, err)
	}
	made, err := e.compilers.pool.Compile(ctx, compiler.Job{Principal: principal, Request: compiler.Request{Code: code}})
	var refused *compiler.RefusedError
	switch {
	case errors.As(err, &refused):
		return codecache.Entry{}, &CodeError{refused}
	case errors.Is(err, compiler.ErrDeadline):
		return codecache.Entry{}, &CodeError{fmt.Errorf("%w; split its largest functions, or the function", err)}
	case err != nil:
		return codecache.Entry{}, fmt.Errorf("wasm: compiling %d bytes: %w", len(code), err)
	}
	name, data, ok := bytes.Cut(made, []byte{'\n'})
	if !ok {
		return codecache.Entry{}, fmt.Errorf("wasm: the compiler process answered %d bytes that are no code", len(made))
	}
	return codecache.Entry{Key: key, Name: string(name), Data: data}, nil
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
func ServeCompiler() error {
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
	l, err := newLane(kindCompiler, os.TempDir())
	if err != nil {
		hello.Why = err.Error()
	} else {
		defer l.close()
	}
	return compiler.Serve(conn, hello, func(r compiler.Request) compiler.Answer {
		if hello.Why != "" {
			return compiler.Answer{Failed: hello.Why}
		}
		return l.answer(r.Code)
	})
}

// answer compiles a module, and gives the file that wazero wrote: its name, a line's end, its content.
func (l *lane) answer(code []byte) compiler.Answer {
	defer l.stage.clear()
	c, err := l.compile(code)
	if err != nil {
		var bad *CodeError
		if errors.As(err, &bad) {
			err = bad.Err
		}
		return compiler.Answer{Refused: err.Error()}
	}
	_ = c.Close(context.Background()) // it frees code that nothing runs
	made, ok := l.stage.newest(l.stage.files())
	if !ok {
		return compiler.Answer{Failed: "wazero wrote no file below " + l.stage.dir}
	}
	return compiler.Answer{Object: append([]byte(made.Name+"\n"), made.Data...)}
}
