package shm

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

const echoID = fabric.FirstMessageID

// echo sends every frame back until the peer is gone. args: address, CPU.
func helperEcho(args []string) error {
	cpu, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	pin(cpu)
	t, err := New(Config{})
	if err != nil {
		return err
	}
	defer t.Close()
	r := &recorder{}
	r.frame = func(id fabric.FrameID, body []byte) error {
		return r.link.Send(id, fabric.Normal, nil, body)
	}
	if r.link, err = dial(t, args[0], r); err != nil {
		return err
	}
	for r.lost == nil {
		t.Poll(64, never)
	}
	return nil
}

// BenchmarkPingPong is a round trip between two processes on CPUs 0 and 1, both spinning.
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
	const group = 16
	var times []time.Duration
	roundTrip := func() {
		want := r.frames + 1
		for s.l.Send(echoID, fabric.Normal, nil, body) != nil {
			t.Poll(64, never)
		}
		for r.frames < want {
			t.Poll(64, never)
		}
	}
	for range 1000 {
		roundTrip()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += group {
		start := time.Now()
		for range group {
			roundTrip()
		}
		times = append(times, time.Since(start))
	}
	b.StopTimer()
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2])/group, "p50-ns")
	b.ReportMetric(float64(times[len(times)*99/100])/group, "p99-ns")
}
