package demo

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// MaxRTT bounds an emulated round trip: more than once around the earth.
const MaxRTT = time.Second

// delayed adds an emulated round trip to a Backend.
type delayed struct {
	Backend
	rtt time.Duration
}

// WithRTT makes every round trip through a Backend take at least rtt longer,
// as if the elements were that far away: a Get and a batch of Gets wait once, an
// injection waits half of rtt for every message of its reply's longest chain. Bandwidth
// is not emulated. Whoever shows times taken this way has to call them emulated.
func WithRTT(b Backend, rtt time.Duration) (Backend, error) {
	if rtt < 0 || rtt > MaxRTT {
		return nil, fmt.Errorf("demo: an emulated round trip of %v: 0 to %v are possible", rtt, MaxRTT)
	}
	if rtt == 0 {
		return b, nil
	}
	return &delayed{b, rtt}, nil
}

func (d *delayed) Inject(ctx context.Context, call *Call) (*Reply, error) {
	reply, err := d.Backend.Inject(ctx, call)
	if err != nil {
		return nil, err
	}
	return reply, wait(ctx, d.rtt*time.Duration(reply.Chain)/2)
}

func (d *delayed) Get(ctx context.Context, r Read) error {
	if err := d.Backend.Get(ctx, r); err != nil {
		return err
	}
	return wait(ctx, d.rtt)
}

func (d *delayed) GetMany(ctx context.Context, reads []Read) error {
	if err := d.Backend.GetMany(ctx, reads); err != nil {
		return err
	}
	return wait(ctx, d.rtt)
}

// timerSlack is how late Go's timers may be on an otherwise idle Linux, where
// the poller counts in milliseconds. What is left of a wait is yielded away.
const timerSlack = 2 * time.Millisecond

// wait returns d later, within microseconds, or when the context ends.
func wait(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	if d > timerSlack {
		t := time.NewTimer(d - timerSlack)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
	for time.Now().Before(end) {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		runtime.Gosched()
	}
	return nil
}
