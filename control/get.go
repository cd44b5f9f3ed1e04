package control

import (
	"context"
	"errors"

	"github.com/wherry-fabric/wherry/fabric"
)

// Range is bytes to be got, and where they go.
type Range struct {
	Dst    []byte
	Offset uint64 // in the key's range
}

// Get gets dst from offset on in pieces that are under way together. When it
// returns, dst is the caller's again.
func Get(ctx context.Context, r *fabric.Remote, dst []byte, offset uint64, piece int) error {
	return GetAll(ctx, r, []Range{{dst, offset}}, piece)
}

// GetAll is Get for several ranges.
func GetAll(ctx context.Context, r *fabric.Remote, ranges []Range, piece int) error {
	type part struct {
		op fabric.Op
		Range
	}
	var parts []part
	for _, g := range ranges {
		for dst, at := g.Dst, g.Offset; len(dst) > 0; {
			n := min(len(dst), piece)
			parts = append(parts, part{r.StartGet(dst[:n:n], at), Range{dst[:n:n], at}})
			dst, at = dst[n:], at+uint64(n)
		}
	}
	var first error
	for _, p := range parts { // every one must end, whatever the others did
		err := p.op.Wait(ctx)
		if errors.Is(err, fabric.ErrBackpressure) && first == nil {
			err = r.Get(ctx, p.Dst, p.Offset) // waits for its turn
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}
