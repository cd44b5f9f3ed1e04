package turn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/bench/peers/echo"
	"github.com/wherry-fabric/wherry/bench/peers/figures"
)

const (
	// maxTimes bounds the durations kept; the calls after them count, but are not in the percentiles.
	maxTimes = 1 << 20
	// leastCalls are made however long they take.
	leastCalls = 3
	// timeEvery is how many questions whether to go on make one look at the clock, where calls are
	// pipelined and not timed singly.
	timeEvery = 16
)

// meter makes a client work and times it. Its buffers are touched before it begins.
type meter struct {
	c     echo.Client
	work  figures.Work
	lanes []*lane // one for each call under way
	bulk  []byte  // what get should return; the source of put
	dst   []byte
	puts  uint64
}

// lane is a sequence of calls, one after the other.
type lane struct {
	req, buf []byte
	seq      uint64
	times    []uint32 // ns
	calls    int
}

// echoBytes is the payload of an echo; of works without any, that of the ordinary one.
func (m *meter) echoBytes() int {
	if m.work == figures.Get || m.work == figures.Put {
		return figures.EchoBytes
	}
	return m.work.Bytes()
}

func newMeter(c echo.Client, work figures.Work) *meter {
	m := &meter{c: c, work: work, bulk: echo.Bulk(), dst: bytes.Repeat([]byte{1}, figures.BulkBytes)}
	n := work.Callers()
	for i := range n {
		times := make([]uint32, maxTimes/n)
		for j := 0; j < len(times); j += 1 << 10 {
			times[j] = 1 // fault the page in
		}
		m.lanes = append(m.lanes, &lane{req: make([]byte, m.echoBytes()), buf: make([]byte, m.echoBytes()), seq: uint64(i) << 32, times: times[:0]})
	}
	return m
}

// run works for so long and returns what it took.
func (m *meter) run(length time.Duration) (figures.Sample, error) {
	for _, l := range m.lanes {
		l.times, l.calls = l.times[:0], 0
	}
	var err error
	began := time.Now()
	calls, singly := 0, true
	p, pipelines := m.c.(echo.Pipeliner)
	switch {
	case len(m.lanes) == 1:
		err = m.lanes[0].run(m.operation(m.lanes[0]), began, length)
	case pipelines && m.work == figures.Echo64:
		calls, err = p.Pipeline(figures.Depth, within(began, length))
		singly = false
	default:
		err = m.together(began, length)
	}
	took := time.Since(began)
	if err != nil {
		return figures.Sample{}, err
	}
	return m.sample(calls, singly, took), nil
}

// within is asked whether to go on: until the time is over, and never again then.
func within(began time.Time, length time.Duration) func() bool {
	asked, over := 0, false
	return func() bool {
		if asked++; asked%timeEvery == 0 {
			over = over || time.Since(began) >= length
		}
		return !over
	}
}

// together runs all lanes at once.
func (m *meter) together(began time.Time, length time.Duration) error {
	var wg sync.WaitGroup
	errs := make([]error, len(m.lanes))
	for i, l := range m.lanes {
		wg.Go(func() { errs[i] = l.run(m.operation(l), began, length) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// run repeats an operation until the time is over. The end of one call is the beginning of the next: the clock is
// read once per call.
func (l *lane) run(operation func() error, began time.Time, length time.Duration) error {
	last := time.Since(began)
	for l.calls < leastCalls || last < length {
		if err := operation(); err != nil {
			return err
		}
		now := time.Since(began)
		if len(l.times) < cap(l.times) {
			l.times = append(l.times, uint32(min(now-last, math.MaxUint32)))
		}
		l.calls++
		last = now
	}
	return nil
}

// operation is what a lane repeats.
func (m *meter) operation(l *lane) func() error {
	switch m.work {
	case figures.Get:
		return m.get
	case figures.Put:
		return m.put
	}
	return func() error { return l.echo(m.c) }
}

func (l *lane) echo(c echo.Client) error {
	l.seq++
	last := len(l.req) - figures.EchoBytes // the same word at both ends
	binary.LittleEndian.PutUint64(l.req[last:], l.seq)
	binary.LittleEndian.PutUint64(l.req, l.seq)
	got, err := c.Echo(l.req, l.buf)
	if err != nil {
		return err
	}
	if len(got) != len(l.req) {
		return fmt.Errorf("%w: an echo of %d bytes has %d", echo.ErrWrongAnswer, len(l.req), len(got))
	}
	if a, b := binary.LittleEndian.Uint64(got), binary.LittleEndian.Uint64(got[last:]); a != l.seq || b != l.seq {
		return fmt.Errorf("%w: echo %x begins with %x and ends with %x", echo.ErrWrongAnswer, l.seq, a, b)
	}
	return nil
}

func (m *meter) get() error {
	got, err := m.c.Get(m.dst)
	if err != nil {
		return err
	}
	const n = figures.BulkBytes
	if len(got) != n || !bytes.Equal(got[:8], m.bulk[:8]) || !bytes.Equal(got[n/2:n/2+8], m.bulk[n/2:n/2+8]) || !bytes.Equal(got[n-8:], m.bulk[n-8:]) {
		return fmt.Errorf("%w: get returned %d bytes that are not the server's", echo.ErrWrongAnswer, len(got))
	}
	return nil
}

func (m *meter) put() error {
	m.puts++
	binary.LittleEndian.PutUint64(m.bulk[figures.BulkBytes-8:], m.puts)
	return m.c.Put(m.bulk)
}

// sample sums a run up. Where calls were not timed singly, their mean time
// follows from how many were under way (Little's law).
func (m *meter) sample(calls int, singly bool, took time.Duration) figures.Sample {
	var s figures.Sample
	if singly {
		var all []uint32
		if len(m.lanes) == 1 {
			all = m.lanes[0].times
		}
		for _, l := range m.lanes {
			calls += l.calls
			if len(m.lanes) > 1 {
				all = append(all, l.times...)
			}
		}
		slices.Sort(all)
		s.P50Ns, s.P99Ns = figures.Quantile(all, 0.5), figures.Quantile(all, 0.99)
	}
	s.Calls = calls
	s.CallsPerS = float64(calls) / took.Seconds()
	s.MeanNs = float64(took) * float64(len(m.lanes)) / float64(max(calls, 1))
	if m.work == figures.Get || m.work == figures.Put {
		s.GBytesPerS = s.CallsPerS * figures.BulkBytes / 1e9
	}
	return s
}
