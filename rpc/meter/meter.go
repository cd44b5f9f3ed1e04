// Package meter counts calls and how long they take, by name, in plain integers: for
// any publisher of metrics. A Meter's interceptors go into rpc.Config.
package meter

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/rpc"
)

const (
	// Buckets is the number of buckets of a histogram.
	Buckets = 32
	// firstBits makes the first bucket end at 1 µs (1024 ns); each next one ends at twice that.
	firstBits = 10
	// maxNames bounds the names that are counted apart: a caller can make them up.
	maxNames = 1024
	// Other is the name under which all further ones are counted.
	Other = "(other)"
)

// BucketEnd is the exclusive upper end of a bucket; the last has none.
func BucketEnd(i int) time.Duration { return 1 << (firstBits + i) }

// Meter counts. The zero value is ready; its methods may be called from any goroutine.
type Meter struct {
	// Answer says of an error that it is an answer, as of a lookup that finds nothing, and no failure; nil: none is.
	Answer func(error) bool

	mu    sync.RWMutex
	calls map[string]*row
	serve map[string]*row
}

type row struct {
	count, denied, busy, late, other, bytes, nanos atomic.Uint64
	active                                         atomic.Int64
	buckets                                        [Buckets]atomic.Uint64
}

// Row is what was counted of one name.
type Row struct {
	Name    string
	Count   uint64 // that have ended
	Failed  uint64 // of them with an error that is no answer; the next three are counted in it:
	Denied  uint64 // ErrDenied
	Busy    uint64 // ErrBusy
	Late    uint64 // ErrDeadline
	Bytes   uint64 // of requests
	Active  int64  // that have begun and not ended
	Total   time.Duration
	Buckets [Buckets]uint64 // by duration; see BucketEnd
}

// Quantile is a duration that a fraction q of the calls did not exceed, as finely
// as buckets tell: up to twice too much.
func (r *Row) Quantile(q float64) time.Duration {
	want := uint64(q * float64(r.Count))
	seen := uint64(0)
	for i, n := range r.Buckets {
		if seen += n; n > 0 && seen >= want {
			return BucketEnd(i)
		}
	}
	return 0
}

// Caller is the interceptor for calls that are made.
func (m *Meter) Caller(_ context.Context, o *rpc.Outgoing) (func(error), error) {
	return m.find(&m.calls, o.Name).begin(o.Bytes, m.Answer), nil
}

// Server is the interceptor for calls that are served.
func (m *Meter) Server(ctx context.Context, c *rpc.Call) (context.Context, func(error), error) {
	return ctx, m.find(&m.serve, c.Name).begin(c.Bytes, m.Answer), nil
}

func (m *Meter) find(table *map[string]*row, name string) *row {
	m.mu.RLock()
	r := (*table)[name]
	m.mu.RUnlock()
	if r != nil {
		return r
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if *table == nil {
		*table = map[string]*row{}
	}
	if (*table)[name] == nil && len(*table) >= maxNames {
		name = Other
	}
	if r = (*table)[name]; r == nil {
		r = &row{}
		(*table)[strings.Clone(name)] = r
	}
	return r
}

func (r *row) begin(bytes int, answer func(error) bool) func(error) {
	start := time.Now()
	r.active.Add(1)
	return func(err error) {
		d := time.Since(start)
		r.active.Add(-1)
		r.count.Add(1)
		r.bytes.Add(uint64(bytes))
		r.nanos.Add(uint64(d))
		r.buckets[bucket(d)].Add(1)
		if err == nil || answer != nil && answer(err) {
			return
		}
		var own *rpc.Error // a server's answer, which has its code only
		code := rpc.Code(0)
		if errors.As(err, &own) {
			code = own.Code
		}
		switch {
		case errors.Is(err, rpc.ErrDenied) || code == rpc.CodeDenied:
			r.denied.Add(1)
		case errors.Is(err, rpc.ErrBusy) || code == rpc.CodeBusy:
			r.busy.Add(1)
		case errors.Is(err, context.DeadlineExceeded) || code == rpc.CodeDeadline:
			r.late.Add(1)
		default:
			r.other.Add(1)
		}
	}
}

func bucket(d time.Duration) int {
	return min(max(bits.Len64(uint64(max(d, 0)))-firstBits, 0), Buckets-1)
}

// Calls are the calls made, by name in order.
func (m *Meter) Calls() []Row { return m.rows(&m.calls) }

// Served are the calls served, by name in order.
func (m *Meter) Served() []Row { return m.rows(&m.serve) }

func (m *Meter) rows(table *map[string]*row) []Row {
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := make([]Row, 0, len(*table))
	for name, r := range *table {
		out := Row{Name: name, Count: r.count.Load(), Denied: r.denied.Load(), Busy: r.busy.Load(),
			Late: r.late.Load(), Bytes: r.bytes.Load(), Active: r.active.Load(), Total: time.Duration(r.nanos.Load())}
		// Made of its parts, so that none of them is ever more than the whole.
		out.Failed = out.Denied + out.Busy + out.Late + r.other.Load()
		for i := range r.buckets {
			out.Buckets[i] = r.buckets[i].Load()
		}
		list = append(list, out)
	}
	slices.SortFunc(list, func(a, b Row) int { return strings.Compare(a.Name, b.Name) })
	return list
}
