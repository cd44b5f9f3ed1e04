package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// segments is how many segments with data this process's sockets have sent.
func segments(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range fds {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n += int(info.Data_segs_out)
		}
	}
	return n
}

// TestCrowdSendsTogether has many goroutines call at one endpoint: their requests leave together, and so do answers. How many do, depends
// on how quickly they run (a late one sends at once), so a part of the segments must be saved: each for itself, a call takes two.
func TestCrowdSendsTogether(t *testing.T) {
	const callers, each = 64, 100
	const most = 2 * callers * each * 7 / 8
	a, b := newSide(t, "a", Limits{}), newSide(t, "b", Limits{})
	ep := connect(t, a, b, "tcp://127.0.0.1:0")
	if err := b.p.Register("echo", echo, Options{Inline: true}); err != nil {
		t.Fatal(err)
	}
	// Goroutines that happen to run one after the other are no crowd: the fewest of some tries count.
	least := 2 * callers * each
	for try := 0; try < 20 && least > most; try++ {
		before := segments(t)
		callAll(t, a.p, ep, callers, each)
		least = min(least, segments(t)-before)
	}
	if least == 0 || least > most {
		t.Errorf("%d calls took %d segments or more, both ways, each time", callers*each, least)
	}
	served := b.p.Stats().Served
	ep.Hold()
	if err := a.p.Send(t.Context(), ep, "echo", nil); err != nil {
		t.Fatal(err)
	}
	ep.Release() // the only one that holds now
	waitFor(t, "what was held arrives", func() bool { return b.p.Stats().Served == served+1 })
}

// callAll makes calls from many goroutines, each after each, and looks at the answers.
func callAll(t *testing.T, p *Peer, ep *fabric.Endpoint, callers, each int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			var req [8]byte
			got := make([]byte, 0, len(req))
			for n := range each {
				binary.LittleEndian.PutUint64(req[:], uint64(i*each+n))
				var err error
				if got, err = p.CallAppend(t.Context(), ep, "echo", req[:], got[:0]); err != nil || string(got) != string(req[:]) {
					t.Errorf("call %d of caller %d: %x, %v", n, i, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkCrowd calls from many goroutines.
func BenchmarkCrowd(b *testing.B) {
	for _, each := range []int{1, 32} {
		b.Run(fmt.Sprintf("%d a processor", each), func(b *testing.B) {
			x, y := newSide(b, "a", Limits{}), newSide(b, "b", Limits{})
			ep := connect(b, x, y, "tcp://127.0.0.1:0")
			if err := y.p.Register("echo", echo, Options{Inline: true}); err != nil {
				b.Fatal(err)
			}
			b.SetParallelism(each)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				req, dst := make([]byte, 8), make([]byte, 0, 8)
				for pb.Next() {
					if _, err := x.p.CallAppend(context.Background(), ep, "echo", req, dst); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkDeadlines is what a deadline costs that nobody waits for, of one of many endpoints.
func BenchmarkDeadlines(b *testing.B) {
	of := newSide(b, "a", Limits{})
	p := &Peer{el: of.el, limits: of.p.limits}
	for range 4000 {
		p.order = append(p.order, newConn(p, nil))
	}
	c := p.order[1234]
	p.sweep(0)
	for now := int64(1); b.Loop(); now++ {
		c.due.Store(now)
		p.sweep(now)
	}
}
