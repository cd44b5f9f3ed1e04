package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/rpc"
)

// TestExitCodes is docs/cli.md's table: what an error is decides, wrapped
// however deep, and never how it reads.
func TestExitCodes(t *testing.T) {
	_, missing := os.Open("/nonexistent/file")
	_, noTokens := cluster.LoadTokens("/nonexistent/tokens")
	for _, c := range []struct {
		err  error
		code int
	}{
		{errors.New("anything else"), exitFailed},
		{errors.New("unknown command, arg(s)"), exitFailed}, // the words alone mean nothing
		{cluster.ErrExists, exitFailed},
		{usagef("no"), exitUsage},
		{invoke.ErrRequest, exitUsage},
		{missing, exitUsage},
		{noTokens, exitUsage},
		{cluster.ErrToken, exitUsage},
		{cluster.ErrName, exitUsage},
		{dataset.ErrInput, exitUsage},
		{dataset.ErrOptions, exitUsage},
		{&dataset.LineError{File: "x.csv", Line: 3, Err: io.EOF}, exitUsage},
		{&control.NodeError{Node: "a", Kind: dataset.ErrInput}, exitUsage},
		{control.ErrPath, exitUsage},
		{client.ErrKind, exitUsage},
		{ca.ErrRequest, exitUsage},
		{ca.ErrFile, exitUsage},
		{ca.ErrRefused, exitForbidden},
		{ca.ErrNotFound, exitNotFound},
		{cluster.ErrForbidden, exitForbidden},
		{fabric.ErrRefused, exitForbidden},
		{fabric.ErrRights, exitForbidden},
		{fabric.ErrRevoked, exitForbidden},
		{&travel.RefusedError{Code: travel.CodeRefused}, exitForbidden},
		{cluster.ErrNotFound, exitNotFound},
		{control.ErrNoNode, exitNotFound},
		{xrdma.ErrUnknown, exitNotFound},
		{errNoFunction, exitNotFound},
		{fmt.Errorf("dataset d: %w", client.ErrChanged), exitChanged},
		{control.ErrNotConnected, exitLost},
		{fmt.Errorf("%w to any node: %w", control.ErrNotConnected, control.ErrInsecure), exitUsage},
		{fmt.Errorf("node n: %w", client.ErrNoAnswer), exitLost},
		{fmt.Errorf("%w: %w", control.ErrNotConnected, context.DeadlineExceeded), exitLost},
		{fmt.Errorf("%w: %w", control.ErrNotConnected, os.ErrNotExist), exitLost},
		{control.ErrRestarted, exitLost},
		{control.ErrNameTaken, exitUsage},
		{control.ErrNoShard, exitLost},
		{fabric.ErrPeerLost, exitLost},
		{&travel.PeerLostError{MayHaveRun: true}, exitLost},
		{travel.ErrDeadline, exitDeadline},
		{context.DeadlineExceeded, exitDeadline},
		{&rpc.RemoteError{Code: rpc.CodeAnswer, Text: "no room"}, exitFull},
		{travel.ErrBackpressure, exitFull},
		{&travel.RefusedError{Code: travel.CodeBackpressure}, exitFull},
		{&travel.RemoteError{Code: travel.CodeHopLimit}, exitFull},
		{&travel.RemoteError{Code: travel.CodeFunction, Status: int32(abi.ErrArgument)}, exitUsage},
		{&travel.RemoteError{Code: travel.CodeFunction, Status: 7}, exitFailed},
		{&travel.RemoteError{Code: travel.CodeFunction, Status: int32(abi.ErrRights)}, exitForbidden},
		{&travel.RemoteError{Code: travel.CodeFunction, Status: int32(abi.ErrRevoked)}, exitForbidden},
		{&travel.RemoteError{Code: travel.CodeFunction, Status: int32(abi.ErrPeerLost)}, exitLost},
		{&travel.RemoteError{Code: travel.CodeFunction, Status: int32(abi.ErrOutcomeUnknown)}, exitLost},
		{&travel.RemoteError{Code: travel.CodeFunction, Status: int32(abi.ErrDeadline)}, exitDeadline},
		{&travel.RemoteError{Code: travel.CodeFunction, Status: int32(abi.ErrBackpressure)}, exitFull},
		{&travel.RemoteError{Code: travel.CodeFunction, Status: int32(abi.ErrLimit)}, exitFull},
		{(&runFlags{}).moreText(&travel.RemoteError{Code: travel.CodeHopLimit}), exitFull},
		{travel.ErrForkLimit, exitFull},
		{travel.ErrPartLimit, exitFull},
		{control.ErrMemory, exitFull},
		{&control.NodeError{Node: "a", Kind: pool.ErrNoRegion}, exitNotFound},
		{&control.NodeError{Node: "a", Kind: pool.ErrSpec}, exitUsage},
		{&pool.Error{Op: "get", Err: pool.ErrLost}, exitLost},
		{fmt.Errorf("pool: %w", pool.ErrRights), exitForbidden},
		{fmt.Errorf("pool: restore: %w", pool.ErrBackup), exitUsage},
		{&control.NodeError{Node: "a", Kind: control.ErrMemory}, exitFull},
		{cluster.ErrFull, exitFull},
		{errInterrupted, exitInterrupted},
		{exitError(9), 9},
	} {
		for _, err := range []error{c.err, fmt.Errorf("more words: %w", c.err), errors.Join(errors.New("and"), c.err)} {
			if got := exitCode(err); got != c.code {
				t.Errorf("%T %v: exit code %d, want %d", c.err, err, got, c.code)
			}
		}
	}
}

// TestAdvice: errors that say only what is wrong are followed by what to do, unless something else is the matter as well.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		err  error
		says string // "": nothing
	}{
		{&control.NodeError{Node: "a", Kind: cluster.ErrNotFound}, "wherry mem ls"},
		{fmt.Errorf("client: %w", pool.ErrNoRegion), "wherry pool ls"},
		{fmt.Errorf("%w to any node: %w", control.ErrNotConnected, os.ErrNotExist), "--peers"},
		{fmt.Errorf("%w to any node: %w", control.ErrNotConnected, control.ErrInsecure), ""}, // which says --insecure
		{errors.Join(cluster.ErrNotFound, cluster.ErrForbidden), ""},
		{usagef("a flag"), ""},
		{errors.New("anything"), ""},
	} {
		if got := advice(c.err); c.says == "" && got != "" || !strings.Contains(got, c.says) {
			t.Errorf("%v: %q, want %q", c.err, got, c.says)
		}
	}
}

// everyCommand calls f for all commands that people see.
func everyCommand(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			everyCommand(sub, f)
		}
	}
}

// TestEveryCommandHasAnExample, and refuses arguments that it has no use for.
func TestEveryCommandHasAnExample(t *testing.T) {
	a := &app{out: io.Discard, err: io.Discard}
	commands := 0
	everyCommand(a.rootCommand(), func(c *cobra.Command) {
		commands++
		if !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s: its help has no example of it", c.CommandPath())
		}
		if c.Args == nil {
			t.Errorf("%s takes any arguments", c.CommandPath())
		}
	})
	if commands < 20 {
		t.Errorf("only %d commands were looked at", commands)
	}
}

// TestMoreText: whoever used up a budget hears how to get a larger one, or that there is none.
func TestMoreText(t *testing.T) {
	some, all := runFlags{hops: travel.DefaultHops, branches: 10}, runFlags{hops: travel.MaxHops, branches: travel.DefaultBranches}
	for _, c := range []struct {
		f    runFlags
		err  error
		says string
	}{
		{some, travel.ErrHopLimit, "--hops, at most 4095"},
		{some, travel.ErrForkLimit, "--branches, at most 65536"},
		{all, travel.ErrHopLimit, "make several"},
		{all, travel.ErrForkLimit, "make several"},
	} {
		if got := c.f.moreText(c.err); !errors.Is(got, c.err) || !strings.Contains(got.Error(), c.says) {
			t.Error(got)
		}
	}
	if some.moreText(nil) != nil {
		t.Error("an error was made of none")
	}
}
