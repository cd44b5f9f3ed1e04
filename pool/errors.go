package pool

import (
	"context"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
)

// Sentinels to branch on with errors.Is.
var (
	// ErrMemory: the component does not lend so much.
	ErrMemory = errors.New("not enough memory to lend")
	// ErrNoRegion: the component has no such region, or none that the asker may see.
	ErrNoRegion = errors.New("no such region")
	// ErrNoItem: the region has no such item, or none that the asker may see.
	ErrNoItem = errors.New("no such item")
	// ErrExists: a region, or an item of the region, of that name is there already.
	ErrExists = errors.New("it exists already")
	// ErrSpec: what was asked for makes no sense.
	ErrSpec = errors.New("bad request for a region")
	// ErrMoved: the region was destroyed, or has another table of extents now. A new lookup gives the new one.
	ErrMoved = errors.New("the region has moved")
	// ErrRange: an operation leaves the region.
	ErrRange = errors.New("outside the region")
	// ErrRights: the holder may not do this with the region, or may not make one. Where a component or manager refused a call, the error is cluster.ErrForbidden too.
	ErrRights = errors.New("the region was not opened with this right")
	// ErrLost: the component is gone, and its memory with it.
	ErrLost = errors.New("the component is lost, and what its memory held")
	// ErrNotMapped: these bytes are not mapped here in one piece.
	ErrNotMapped = errors.New("not mapped here in one piece")
	// ErrClosed: the Region was closed here.
	ErrClosed = errors.New("the region was closed here")
)

// Error is an operation's failure.
type Error struct {
	Op        string // "get", "put", …
	Region    string // its name, or its number
	Component string
	Off, Size uint64
	Err       error // wraps one of the sentinels, where one fits
}

func (e *Error) Error() string {
	return fmt.Sprintf("pool: %s of %d bytes at %d of region %s at %s: %v", e.Op, e.Size, e.Off, e.Region, e.Component, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// VerbError says what an error of the fabric's verbs means here, or of a component that carries them out.
func VerbError(err error) error {
	for _, v := range []struct{ of, is error }{
		{fabric.ErrRevoked, ErrMoved}, {fabric.ErrKey, ErrMoved}, {fabric.ErrIncarnation, ErrLost}, {fabric.ErrPeerLost, ErrLost}, {fabric.ErrClosed, ErrLost},
		{fabric.ErrRange, ErrRange}, {fabric.ErrRights, ErrRights}, {cluster.ErrForbidden, ErrRights}, // by the key, or by the component that serves it
	} {
		if errors.Is(err, v.of) {
			return fmt.Errorf("%w: %w", v.is, err)
		}
	}
	return err
}

// refusing is an Asker whose refusals of rights are ErrRights.
type refusing struct{ Asker }

func (r refusing) Ask(ctx context.Context, component, call string, req, reply any) (*fabric.Endpoint, error) {
	ep, err := r.Asker.Ask(ctx, component, call, req, reply)
	return ep, refusedBy(err)
}

func (r refusing) Call(ctx context.Context, ep *fabric.Endpoint, call string, req []byte) ([]byte, error) {
	answer, err := r.Asker.Call(ctx, ep, call, req)
	return answer, refusedBy(err)
}

// refused is an error that says by itself who lacks which right: ErrRights adds nothing to its text.
type refused struct{ error }

func refusedBy(err error) error {
	if errors.Is(err, cluster.ErrForbidden) {
		return refused{err}
	}
	return err
}

func (r refused) Is(target error) bool { return target == ErrRights }

func (r refused) Unwrap() error { return r.error }
