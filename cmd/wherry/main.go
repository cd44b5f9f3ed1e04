// Command wherry is all of wherry in one program: a node that lends memory and
// runs functions, and the client's tools. docs/cli.md is its reference.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/wherry-fabric/wherry/inject/native"
)

func main() {
	native.Main() // returns, unless this process is to run functions
	os.Exit(run(os.Args[1:]))
}

// kept writes help texts and keeps the first error: cobra does not end with it.
type kept struct {
	w   io.Writer
	err error
}

func (k *kept) Write(p []byte) (int, error) {
	if k.err == nil {
		_, k.err = k.w.Write(p)
	}
	return len(p), nil
}

// run is main without the exit, for tests of the command line.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.in)
	shown := &kept{w: a.out}
	root.SetOut(shown)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = shown.err
	}
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	return a.fail(err)
}
