package component

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

// copyStep is how much is copied between two looks at whether the caller still waits.
const copyStep = 4 << 20

// Copy copies between regions of this component, or within one.
func (c *Component) Copy(ctx context.Context, who cluster.Principal, req *pool.CopyRequest) error {
	if req.Size > pool.MaxCopyBytes {
		return fmt.Errorf("%w: %d bytes, at most %d in one request", pool.ErrSpec, req.Size, pool.MaxCopyBytes)
	}
	from, err := c.use(who, req.From, fabric.RightRead)
	if err != nil {
		return err
	}
	defer from.unpin()
	to, err := c.use(who, req.To, fabric.RightWrite)
	if err != nil {
		return err
	}
	defer to.unpin()
	for _, end := range []struct {
		of  *used
		off uint64
	}{{from, req.FromOff}, {to, req.ToOff}} {
		if err := end.of.has(end.off, req.Size); err != nil {
			return err
		}
	}
	if from.id == to.id && from.item == to.item && req.FromOff < req.ToOff+req.Size && req.ToOff < req.FromOff+req.Size && req.Size > 0 {
		return fmt.Errorf("%w: %d bytes at %d and at %d of %s overlap: copy in parts", pool.ErrSpec, req.Size, req.FromOff, req.ToOff, from.label)
	}
	for at := uint64(0); at < req.Size; at += copyStep {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		dst := req.ToOff + at
		from.span(req.FromOff+at, min(copyStep, req.Size-at), func(src []byte) {
			to.span(dst, uint64(len(src)), func(there []byte) {
				fabric.CopyIn(there, src[:len(there)])
				src = src[len(there):]
				dst += uint64(len(there))
			})
		})
	}
	return nil
}
