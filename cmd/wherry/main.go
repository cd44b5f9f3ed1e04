// Command wherry is all of wherry in one program: a node that lends memory and
// runs functions, and the client's tools. docs/cli.md is its reference.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run(os.Args[1:])) }

// run is main without the exit, for tests of the command line.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	return a.fail(err)
}
