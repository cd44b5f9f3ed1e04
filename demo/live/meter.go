package live

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/demo"
)

const (
	// quietPause lies between two looks at the counters: what is on its way arrives
	// within a millisecond.
	quietPause = 5 * time.Millisecond
	// quietLooks bounds how often is looked until nothing but the looking itself is
	// counted, and nothing owed: an acknowledgement waits 20 ms for others, and another
	// may follow from it. Where others use the nodes too, it never gets quiet.
	quietLooks = 50
	// calibrations is how many looks in a row must cost the same.
	calibrations = 3
)

// meter sums up what travels between the nodes and with this client.
type meter struct {
	cost  demo.Traffic // of one look
	spent demo.Traffic // of all looks so far
	last  demo.Traffic // as counted, at the last look
}

func plus(a, b demo.Traffic) demo.Traffic {
	return demo.Traffic{Messages: a.Messages + b.Messages, ToClient: a.ToClient + b.ToClient,
		FromClient: a.FromClient + b.FromClient, Between: a.Between + b.Between}
}

func minus(a, b demo.Traffic) demo.Traffic {
	return demo.Traffic{Messages: a.Messages - b.Messages, ToClient: a.ToClient - b.ToClient,
		FromClient: a.FromClient - b.FromClient, Between: a.Between - b.Between}
}

// look counts everything so far, looking included. owed says that more will come of
// that by itself.
func (b *Backend) look(ctx context.Context) (sum demo.Traffic, owed bool, err error) {
	replies := make([]*control.Traffic, len(b.eps))
	errs := make([]error, len(b.eps))
	var wg sync.WaitGroup
	for i, ep := range b.eps {
		wg.Go(func() {
			replies[i], errs[i] = control.Do[control.Traffic](ctx, b.client.RPC(), ep, control.CallTraffic, control.Nothing{})
		})
	}
	wg.Wait()
	owed = b.client.Runtime().Stats().Sizes.Owed() > 0
	self := b.client.Element().Incarnation()
	for i, ep := range b.eps {
		if errs[i] != nil {
			return sum, false, fmt.Errorf("live: what %s has sent: %w", ep.Name(), errs[i])
		}
		owed = owed || replies[i].Owed > 0
		own := ep.Stats()
		sum.Messages += own.SentFrames
		sum.FromClient += own.SentBytes
		for _, s := range replies[i].Sent {
			switch {
			case s.To == cluster.Incarnation(self):
				sum.ToClient += uint64(s.Bytes)
			case isElement(b.table, s.To):
				sum.Between += uint64(s.Bytes)
			default:
				continue
			}
			sum.Messages += uint64(s.Frames)
		}
	}
	return sum, owed, nil
}

func isElement(t *cluster.Table, i cluster.Incarnation) bool {
	for k := range t.Shards {
		if cluster.Incarnation(t.Shards[k].Incarnation) == i {
			return true
		}
	}
	return false
}

// calibrate finds what a look costs.
func (m *meter) calibrate(ctx context.Context, b *Backend) error {
	same := 0
	for range quietLooks {
		now, owed, err := b.look(ctx)
		if err != nil {
			return err
		}
		if cost := minus(now, m.last); cost == m.cost && !owed {
			same++
		} else {
			m.cost, same = cost, 0
		}
		m.last = now
		if same == calibrations {
			break
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	m.spent = m.last // what was before does not count
	return nil
}

// Traffic is the sum since Open, once it is quiet.
func (b *Backend) Traffic(ctx context.Context) (demo.Traffic, error) {
	m := &b.meter
	for i := 0; ; i++ {
		now, owed, err := b.look(ctx)
		if err != nil {
			return demo.Traffic{}, err
		}
		news := minus(now, m.last)
		m.last, m.spent = now, plus(m.spent, m.cost)
		if i > 0 && news == m.cost && !owed || i == quietLooks {
			return plus(minus(now, m.spent), b.mapped), nil
		}
		if err := pause(ctx); err != nil {
			return demo.Traffic{}, err
		}
	}
}

func pause(ctx context.Context) error {
	t := time.NewTimer(quietPause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
