package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/column/expr"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/excache"
	"github.com/wherry-fabric/wherry/pool/manager"
	"github.com/wherry-fabric/wherry/query"
	"github.com/wherry-fabric/wherry/rpc"
	"github.com/wherry-fabric/wherry/schema"
)

// Exit codes; docs/cli.md lists them, and they only ever grow.
const (
	exitFailed      = 1
	exitUsage       = 2   // the command line or a file it names is wrong
	exitForbidden   = 3   // refused: token, capability, grant or key
	exitNotFound    = 4   // no such dataset, node or function
	exitLost        = 5   // an element was lost, is stopping or cannot be reached; what was asked may have happened
	exitDeadline    = 6   // no time was left
	exitFull        = 7   // a queue or a limit
	exitChanged     = 8   // a dataset changed while it was read
	exitInterrupted = 130 // Ctrl-C or SIGTERM
)

var (
	// errUsage is what every usageError is.
	errUsage = errors.New("usage")
	// errNoFunction: the image file of a function is not there.
	errNoFunction = errors.New("no such function")
	// errInterrupted: the user has ended the command.
	errInterrupted = errors.New("interrupted")
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// Is makes errors.Is find errUsage.
func (u usageError) Is(target error) bool { return target == errUsage }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitError ends the program with a code and nothing more to say.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitClass is an exit code and the errors that it stands for.
type exitClass struct {
	code int
	is   []error
}

// exitClasses are looked through in order: the first that has an error counts.
func exitClasses() []exitClass {
	return []exitClass{
		{exitInterrupted, []error{errInterrupted}},
		{exitUsage, []error{errUsage, invoke.ErrRequest, query.ErrQuery, expr.ErrExpr, column.ErrSchema, batch.ErrFormat, ca.ErrRequest, ca.ErrFile, control.ErrInsecure, fabric.ErrAddress}},
		{exitChanged, []error{client.ErrChanged}},
		{exitForbidden, []error{cluster.ErrForbidden, ca.ErrRefused, fabric.ErrRefused, fabric.ErrRights, pool.ErrRights, fabric.ErrRevoked, travel.ErrKey, image.ErrUntrusted, image.ErrSignature}},
		{exitNotFound, []error{cluster.ErrNotFound, pool.ErrNoRegion, pool.ErrNoItem, device.ErrNoDrive, device.ErrNoLease, ca.ErrNotFound, errNoKey, control.ErrNoNode, cluster.ErrNoMember, errNoFunction, xrdma.ErrUnknown}},
		// Before the deadline: a user who waits in vain for a node wants to know that it is the node.
		{exitLost, []error{control.ErrNotConnected, client.ErrNoAnswer, control.ErrRestarted, control.ErrNoShard, control.ErrStopping, cluster.ErrAway, manager.ErrTime, travel.ErrStopping, rpc.ErrCanceled}},
		{exitDeadline, []error{travel.ErrDeadline, context.DeadlineExceeded, os.ErrDeadlineExceeded}},
		{exitLost, []error{travel.ErrPeerLost, fabric.ErrPeerLost, travel.ErrOutcomeUnknown, fabric.ErrIncarnation, pool.ErrLost, pool.ErrMoved}},
		{exitFull, []error{travel.ErrBackpressure, fabric.ErrBackpressure, travel.ErrLimit, travel.ErrHopLimit, travel.ErrForkLimit, travel.ErrPartLimit,
			travel.ErrTooLarge, cluster.ErrFull, control.ErrMemory, device.ErrBusy, device.ErrLimit, rpc.ErrBusy, rpc.ErrAnswer, rpc.ErrTooLarge, fabric.ErrTooMany, fabric.ErrTooLarge, dataset.ErrTooLarge, part.ErrLimit}},
		{exitForbidden, []error{travel.ErrRefused}}, // for no reason above
		{exitUsage, []error{control.ErrNameTaken, cluster.ErrToken, cluster.ErrName, cluster.ErrPeers, cluster.ErrSharding, dataset.ErrInput, dataset.ErrOptions, dataset.ErrGraph,
			excache.ErrProgram, exec.ErrNotFound, schema.ErrSchema, schema.ErrArgument, control.ErrRequest, control.ErrPath, client.ErrKind, pool.ErrSpec, pool.ErrRange, pool.ErrBackup, device.ErrSpec, image.ErrManifest, cbuild.ErrSource,
			os.ErrNotExist, os.ErrPermission, unix.EISDIR, unix.ENOTDIR, unix.ENAMETOOLONG}},
	}
}

// exitCode finds the code that an error ends the program with.
func exitCode(err error) int {
	var exit exitError
	if errors.As(err, &exit) {
		return int(exit)
	}
	var line *dataset.LineError
	if errors.As(err, &line) {
		return exitUsage
	}
	var remote *travel.RemoteError
	if errors.As(err, &remote) && remote.Code == travel.CodeFunction && abi.Status(remote.Status) == abi.ErrArgument {
		return exitUsage // the function says what it was given and does not take
	}
	for _, c := range exitClasses() {
		for _, is := range c.is {
			if errors.Is(err, is) {
				return c.code
			}
		}
	}
	return exitFailed
}

// advice is what to do about an error that says only what is wrong, "" if there is nothing to add. An error whose exit code is of
// something else says by itself what to do about that.
func advice(err error) string {
	code := exitCode(err)
	for _, a := range []struct {
		is   error
		code int
		do   string
	}{
		{cluster.ErrNotFound, exitNotFound, "wherry mem ls lists the datasets that you may see"},
		{pool.ErrNoRegion, exitNotFound, "wherry pool ls lists the regions that you may see"},
		{control.ErrNotConnected, exitLost, "is a node running there? --peers (or WHERRY_PEERS) says where nodes are"},
	} {
		if a.code == code && errors.Is(err, a.is) {
			return a.do
		}
	}
	return ""
}
