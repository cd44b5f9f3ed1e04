package shm

import (
	"encoding/binary"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

const (
	echoID  = fabric.FirstMessageID
	floorID = echoID + 10 // bounce the floor word as often as the body says
	// group is how many round trips are timed together: reading the clock costs
	// about a third of one.
	group = 64
)

// floorWord is a word of the link's memory that the rings do not use. Bouncing
// it is the least that a round trip between two cores costs.
func floorWord(l *link) *atomic.Uint64 {
	return &(*slot)(aligned(l.mem[controlBytes/2:][:slotBytes])).word
}

// helperEcho sends every frame back until the peer is gone. args: address, CPU.
func helperEcho(args []string) error {
	cpu, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	pin(cpu)
	r := &recorder{}
	t, l, err := linked(args[0], r)
	if err != nil {
		return err
	}
	defer t.Close()
	r.frame = func(id fabric.FrameID, body []byte) error {
		if id == floorID {
			word := floorWord(l)
			for i := range binary.LittleEndian.Uint64(body) {
				for word.Load() != 2*i+1 {
				}
				word.Store(2*i + 2)
			}
			return nil
		}
		for {
			if err := r.link.Send(id, fabric.Reserved, nil, body); err != fabric.ErrLinkFull {
				return err
			}
		}
	}
	for r.lost == nil {
		t.Poll(64, never)
	}
	return nil
}

// BenchmarkPingPong is a round trip between two processes on CPUs 0 and 1, both
// spinning, beside the bare bounce of one word between them.
func BenchmarkPingPong(b *testing.B) {
	for _, size := range []int{8, 56, 1024, 65536} {
		b.Run(strconv.Itoa(size), func(b *testing.B) { pingPong(b, size) })
	}
}

func pingPong(b *testing.B, size int) {
	pin(0)
	t := newTransport(b, Config{})
	addr := uniqueName()
	r := &recorder{}
	ch, err := listen(t, addr, func() fabric.Receiver { return r })
	must(b, err)
	spawn(b, "echo", addr, "1")
	s := <-ch
	must(b, s.err)
	body := make([]byte, size)
	roundTrip := func() {
		want := r.frames + 1
		for s.l.Send(echoID, fabric.Normal, nil, body) != nil {
			t.Poll(64, never)
		}
		for r.frames < want {
			t.Poll(64, never)
		}
	}
	word := floorWord(s.l)
	bounce := func() {
		word.Store(0)
		must(b, s.l.Send(floorID, fabric.Normal, nil, number(group)))
		for i := range uint64(group) {
			word.Store(2*i + 1)
			for word.Load() != 2*i+2 {
			}
		}
	}
	for range 1000 {
		roundTrip()
	}
	var times, floors []time.Duration
	var total time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += group {
		start := time.Now()
		for range group {
			roundTrip()
		}
		middle := time.Now()
		bounce()
		floors = append(floors, time.Since(middle))
		times = append(times, middle.Sub(start))
		total += middle.Sub(start)
	}
	b.StopTimer()
	p50 := percentile(times, 50)
	floor := percentile(floors, 50)
	b.ReportMetric(float64(total)/float64(len(times)*group), "ns/op") // without the floor's
	b.ReportMetric(p50, "p50-ns")
	b.ReportMetric(percentile(times, 99), "p99-ns")
	b.ReportMetric(floor, "floor-ns")
	b.ReportMetric(p50/floor, "p50/floor")
}

// percentile is per round trip of a group.
func percentile(d []time.Duration, p int) float64 {
	slices.Sort(d)
	return float64(d[len(d)*p/100]) / group
}

// BenchmarkWake is a round trip between two processes that both sleep between frames.
func BenchmarkWake(b *testing.B) {
	t := newTransport(b, Config{})
	addr := uniqueName()
	r := &recorder{}
	ch, err := listen(t, addr, func() fabric.Receiver { return r })
	must(b, err)
	spawn(b, "dozer", addr)
	s := <-ch
	must(b, s.err)
	b.ReportAllocs()
	for b.Loop() {
		must(b, s.l.Send(echoID, fabric.Normal, nil, nil))
		for want := r.frames + 1; r.frames < want; t.Poll(64, never) {
			must(b, sleepOn(t, patience))
		}
	}
}

// helperDozer echoes frames and sleeps between them.
func helperDozer(args []string) error {
	r := &recorder{}
	r.frame = func(id fabric.FrameID, _ []byte) error { return r.link.Send(id, fabric.Normal, nil, nil) }
	t, _, err := linked(args[0], r)
	if err != nil {
		return err
	}
	defer t.Close()
	for r.lost == nil {
		if err := sleepOn(t, patience); err != nil {
			return err
		}
		t.Poll(64, never)
	}
	return nil
}

// BenchmarkSend is the producer's side alone, to a peer that polls.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{8, 4096} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			x, y := pair(b, Config{})
			body := make([]byte, size)
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				for x.l.Send(testID, fabric.Normal, nil, body) != nil {
					y.poll()
				}
			}
		})
	}
}
