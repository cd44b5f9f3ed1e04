package fabric

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// TestRecentNow: it is the clock itself where nobody keeps the coarse one, and near it where somebody does; it is never ahead.
func TestRecentNow(t *testing.T) {
	var clock atomic.Int64
	clock.Store(5)
	manual, err := New(Config{Name: "manual", Manual: true, Now: clock.Load})
	if err != nil {
		t.Fatal(err)
	}
	defer manual.Close()
	for range 3 {
		if got := manual.RecentNow(); got != clock.Add(1000)-1000 {
			t.Errorf("RecentNow of a manual element is %d", got)
		}
	}
	for _, p := range []Policy{Balanced, Efficient, Latency} {
		e, err := New(Config{Name: "own", Policy: p})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		var stop atomic.Bool
		time.AfterFunc(100*time.Millisecond, func() { stop.Store(true); e.Wake() })
		late := 0
		for i := range 200 {
			if i == 100 {
				go e.WaitFor(soon(t), stop.Load)
			}
			time.Sleep(300 * time.Microsecond)
			before := e.Now()
			got := e.RecentNow()
			if got > e.Now() {
				t.Fatal("RecentNow is ahead of the clock")
			}
			if before-got > int64(20*time.Millisecond) {
				late++
			}
		}
		if late > 10 {
			t.Errorf("policy %v: RecentNow was more than 20 ms late %d times of 200", p, late)
		}
	}
}

// TestAt: a time is the same on the element's clock whether or not it has a monotonic reading, and however often the
// wall clock was set since the element began.
func TestAt(t *testing.T) {
	e, err := New(Config{Name: "at"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	check := func(when string) {
		t.Helper()
		at := time.Now().Add(time.Minute)
		for kind, at := range map[string]time.Time{"monotonic": at, "wall": at.Round(0), "UTC": at.UTC(), "wall, elsewhere": at.Round(0).In(time.FixedZone("x", 3600))} {
			if off := time.Duration(e.At(at) - e.Now() - int64(time.Minute)); off.Abs() > 10*time.Second {
				t.Errorf("%s, %s: in a minute is %v off", when, kind, off)
			}
		}
	}
	check("as it is")
	// A time with a monotonic reading keeps the wall clock's seconds apart from it, above 30 bits of nanoseconds:
	// this is a start at which the wall clock was an hour behind what it says now.
	wall := (*uint64)(unsafe.Pointer(&e.start))
	if *wall>>63 == 0 {
		t.Fatal("the start has no monotonic reading")
	}
	now := e.Now()
	*wall -= 3600 << 30
	if off := time.Duration(e.Now() - now); off.Abs() > time.Second {
		t.Fatalf("the element's clock has moved by %v", off)
	}
	check("after the wall clock was set")
	own, err := New(Config{Name: "own", Manual: true, Now: func() int64 { return 77 }})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if off := time.Duration(own.At(time.Now().Add(time.Second)) - 77 - int64(time.Second)); off.Abs() > time.Second/2 {
		t.Errorf("on a clock of its own, %v off", off)
	}
}
