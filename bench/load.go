package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/internal/child"
)

// loops are processes that do nothing but keep the CPUs busy, as other programs on the machine would.
type loops []*child.Process

// loopReport is what such a process says: that it runs, and at the end the share of a CPU that it had since.
type loopReport struct{ Share float64 }

// loopCPUs are the CPUs that a benchmark's processes use, or all of them.
func (c *Config) loopCPUs() []int {
	switch {
	case c.SameCPU:
		return []int{sharedCPU}
	case c.Pin && runtime.NumCPU() > 1:
		return []int{0, 1}
	}
	all := make([]int, runtime.NumCPU())
	for i := range all {
		all[i] = i
	}
	return all
}

// startLoops starts a busy loop on each CPU that the benchmark uses.
func startLoops(ctx context.Context, c *Config) (l loops, err error) {
	for _, cpu := range c.loopCPUs() {
		p, err := start(ctx, c, role{Role: "loop"}, []int{cpu})
		if err != nil {
			l.end()
			return nil, err
		}
		l = append(l, p)
		if err := hear(p, &loopReport{}); err != nil {
			l.end()
			return nil, err
		}
	}
	return l, nil
}

// share stops the loops and returns which share of their CPUs they had: the mean of all.
func (l loops) share() (share float64, err error) {
	for _, p := range l {
		_ = p.Tell("stop") // if it fails the process has ended, and hear says why
	}
	for _, p := range l {
		var r loopReport
		if err := hear(p, &r); err != nil {
			return 0, err
		}
		share += r.Share / float64(len(l))
	}
	return share, nil
}

func (l loops) end() {
	for _, p := range l {
		p.EndInput()
	}
	for _, p := range l {
		p.End()
	}
}

// runLoop is a busy loop's process, until it is told to stop or its input ends.
func runLoop(in *json.Decoder, w io.Writer) error {
	began := time.Now()
	out := json.NewEncoder(w)
	if err := out.Encode(loopReport{}); err != nil {
		return err
	}
	var stop atomic.Bool
	go func() { // it ends with the process, which ends with the loop
		var word json.RawMessage
		_ = in.Decode(&word) // a word or the input's end
		stop.Store(true)
	}()
	for !stop.Load() {
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return fmt.Errorf("bench: what a busy loop used: %w", err)
	}
	used := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return out.Encode(loopReport{Share: used.Seconds() / time.Since(began).Seconds()})
}
