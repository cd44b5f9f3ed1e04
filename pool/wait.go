package pool

import (
	"context"

	"github.com/wherry-fabric/wherry/fabric"
)

// element is this process on the fabric; nil: the memory is at components none of which was reached.
func (m *Memory) element() *fabric.Element {
	for _, h := range m.view.Load().homes {
		if h.ep != nil {
			return h.ep.Element()
		}
	}
	return nil
}

// WaitFor drives progress until cond holds or the context ends. cond is cheap; it is looked at whenever anything has arrived, and after each Wake.
// It may wait for operations on other memory too.
func (m *Memory) WaitFor(ctx context.Context, cond func() bool) error {
	el := m.element()
	if el == nil {
		return ErrLost
	}
	return el.WaitFor(ctx, cond)
}

// Wake has all goroutines in WaitFor look at their conditions.
func (m *Memory) Wake() {
	if el := m.element(); el != nil {
		el.Wake()
	}
}
