package fabric

import (
	"testing"
	"time"
)

// TestYieldBeforeSleep: policy efficient lets others run once before it sleeps,
// as long as that pays.
func TestYieldBeforeSleep(t *testing.T) {
	clock, step := int64(0), time.Microsecond
	el := &Element{now: func() int64 { clock += int64(step); return clock }}
	el.cfg.Policy = Efficient
	l := &el.leader
	l.el = el
	p := pacer{l: l}
	idle := func(what string, want pace) {
		t.Helper()
		if got := p.after(0); got != want {
			t.Fatalf("%s: pace %d, want %d", what, got, want)
		}
	}
	for range vainYields {
		idle("a yield may pay", paceOn)
		idle("it brought nothing", paceSleep)
		p.reset()
	}
	idle("yields have not paid", paceSleep)
	for l.vain%rareYield != rareYield-1 {
		idle("yields have not paid", paceSleep)
	}
	idle("now and then", paceOn)
	if p.after(1); l.vain != 0 {
		t.Fatalf("a frame came after a yield, and %d are in vain", l.vain)
	}
	step = time.Millisecond
	idle("others keep the processor", paceSleep)
	if p.paid(1); l.vain == 0 {
		t.Fatal("a long yield paid")
	}
	l.epfd = -1
	l.vain, step = 0, time.Microsecond
	idle("nobody sleeps in manual mode", paceSleep)
}
