package control

import (
	"context"
	"errors"

	"github.com/wherry-fabric/wherry/fabric"
)

// Get gets dst from offset on in pieces that are under way together. When it
// returns, dst is the caller's again.
func Get(ctx context.Context, r *fabric.Remote, dst []byte, offset uint64, piece int) error {
	type part struct {
		op  fabric.Op
		dst []byte
		at  uint64
	}
	var parts []part
	for len(dst) > 0 {
		n := min(len(dst), piece)
		parts = append(parts, part{r.StartGet(dst[:n:n], offset), dst[:n:n], offset})
		dst, offset = dst[n:], offset+uint64(n)
	}
	var first error
	for _, p := range parts { // every one must end, whatever the others did
		err := p.op.Wait(ctx)
		if errors.Is(err, fabric.ErrBackpressure) && first == nil {
			err = r.Get(ctx, p.dst, p.at) // waits for its turn
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}
