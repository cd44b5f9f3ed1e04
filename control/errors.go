package control

import (
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/manager"
	"github.com/wherry-fabric/wherry/rpc"
)

// Sentinels of a node's errors that no package below has.
var (
	// ErrRequest: a request cannot be read or makes no sense.
	ErrRequest = errors.New("bad request")
	// ErrMemory: the node does not lend so much.
	ErrMemory = pool.ErrMemory
	// ErrLoad: there is no such load, or it is not in the state for this.
	ErrLoad = errors.New("no such load")
	// ErrPath: a path is outside the data roots, or names no file.
	ErrPath = errors.New("path not allowed")
	// ErrStopping: the node is about to stop and takes nothing new.
	ErrStopping = errors.New("the node is stopping")
	// ErrNoShard: the node holds no shard of this dataset.
	ErrNoShard = errors.New("no shard here")
	// ErrInsecure: an address beyond loopback was to be dialled without TLS.
	ErrInsecure = errors.New("beyond loopback TLS is needed")
	// ErrNotConnected: there is no connection to a node.
	ErrNotConnected = errors.New("not connected")
	// ErrNoNode: no node of that name is known.
	ErrNoNode = errors.New("no such node")
	// ErrNameTaken: another node has this one's name.
	ErrNameTaken = errors.New("the name is taken")
	// ErrNoManager: no manager is known there.
	ErrNoManager = errors.New("no manager")
	// ErrRestarted: a node that holds a shard was restarted since, so the shard is gone.
	ErrRestarted = errors.New("the node was restarted and its shard is gone")
)

// Codes of errors; they never change their meaning.
const (
	codeRequest rpc.Code = rpc.FirstCode + iota
	codeMemory
	codeLoad
	codePath
	codeStopping
	codeNoShard
	codeNotConnected
	codeRestarted
	codeNotFound
	codeExists
	codeVersion
	codeForbidden
	codeFull
	codeName
	codeTable
	codeInput
	codeOptions
	codeChanged
	codeTooLarge
	codeNoRegion
	codeRegionExists
	codeRegionSpec
	codeMoved
	codeRange
	codeNoItem
	codeNoDrive
	codeNoLease
	codeBusy
	codeDeviceSpec
	codeDeviceLimit
	codePoolLost
	codeNoManager
	codeManagerBusy
	codeTaken
	codeTime
	codeAway
	codeNoMember
	codeRunning
)

// codes pairs codes and sentinels; the first that matches counts.
func codes() []struct {
	code rpc.Code
	err  error
} {
	return []struct {
		code rpc.Code
		err  error
	}{
		{codeRequest, ErrRequest}, {codeMemory, ErrMemory}, {codeLoad, ErrLoad}, {codePath, ErrPath}, {codeStopping, ErrStopping},
		{codeNoShard, ErrNoShard}, {codeNotConnected, ErrNotConnected}, {codeRestarted, ErrRestarted},
		{codeNotFound, cluster.ErrNotFound}, {codeExists, cluster.ErrExists}, {codeVersion, cluster.ErrVersion},
		{codeForbidden, cluster.ErrForbidden}, {codeFull, cluster.ErrFull}, {codeName, cluster.ErrName}, {codeTable, cluster.ErrTable},
		{codeInput, dataset.ErrInput}, {codeOptions, dataset.ErrOptions}, {codeChanged, dataset.ErrChanged}, {codeTooLarge, dataset.ErrTooLarge},
		{codeNoRegion, pool.ErrNoRegion}, {codeRegionExists, pool.ErrExists}, {codeRegionSpec, pool.ErrSpec}, {codeMoved, pool.ErrMoved}, {codeRange, pool.ErrRange},
		{codeNoItem, pool.ErrNoItem}, {codePoolLost, pool.ErrLost},
		{codeNoDrive, device.ErrNoDrive}, {codeNoLease, device.ErrNoLease}, {codeBusy, device.ErrBusy}, {codeDeviceSpec, device.ErrSpec}, {codeDeviceLimit, device.ErrLimit},
		{codeNoManager, ErrNoManager}, {codeManagerBusy, manager.ErrBusy}, {codeTaken, manager.ErrTaken}, {codeTime, manager.ErrTime}, {codeAway, cluster.ErrAway},
		{codeNoMember, cluster.ErrNoMember}, {codeRunning, cluster.ErrRunning},
	}
}

// NothingFound reports whether an error is the answer of a lookup that found nothing, at either end of a call.
func NothingFound(err error) bool {
	var coded *rpc.Error
	return errors.Is(err, cluster.ErrNotFound) || errors.Is(err, pool.ErrNoRegion) || errors.Is(err, pool.ErrNoItem) || errors.Is(err, device.ErrNoDrive) ||
		errors.As(err, &coded) && (coded.Code == codeNotFound || coded.Code == codeNoRegion || coded.Code == codeNoItem || coded.Code == codeNoDrive)
}

// Coded gives a node's error the code that it travels with.
func Coded(err error) error {
	for _, c := range codes() {
		if !errors.Is(err, c.err) {
			continue
		}
		own := &rpc.Error{Code: c.code, Text: err.Error()}
		if c.code == codeForbidden {
			return &forbidden{own}
		}
		return own
	}
	var line *dataset.LineError
	if errors.As(err, &line) {
		return &rpc.Error{Code: codeInput, Text: err.Error()}
	}
	return err
}

// forbidden is the error of a principal that may not do something. It is rpc.ErrDenied too, for
// interceptors that count calls and do not know this package's codes.
type forbidden struct{ own *rpc.Error }

func (f *forbidden) Error() string { return f.own.Error() }

func (f *forbidden) Unwrap() []error { return []error{f.own, rpc.ErrDenied} }

// NodeError is an error that a node answered with.
type NodeError struct {
	Node string
	Text string // the node's words
	Kind error  // the sentinel; nil if it has none
}

func (e *NodeError) Error() string { return fmt.Sprintf("node %s: %s", e.Node, e.Text) }

// Unwrap makes errors.Is find the sentinel.
func (e *NodeError) Unwrap() error { return e.Kind }

// Err turns what a call returned into an error that names the node and wraps
// the sentinel the node's error was made from.
func Err(node string, err error) error {
	var remote *rpc.RemoteError
	if !errors.As(err, &remote) {
		return fmt.Errorf("node %s: %w", node, err)
	}
	e := &NodeError{Node: node, Text: remote.Text, Kind: remote.Unwrap()}
	for _, c := range codes() {
		if c.code == remote.Code {
			e.Kind = c.err
		}
	}
	if errors.Is(e.Kind, rpc.ErrNoSuchCall) {
		e.Text = fmt.Sprintf("it does not know the call %q: it runs an older program; upgrade it", remote.Call)
	}
	return e
}
