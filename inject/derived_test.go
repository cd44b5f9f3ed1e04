package inject_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/schema"
)

// withConstants has functions derived whose constants are one number.
func withConstants(m *image.Manifest) {
	m.Constants = &schema.Schema{Fields: []schema.Field{{Name: "least", Type: schema.U64}}}
}

// derives says what a program of derived functions replies with, one reply for each branch; own are the constants that its function was derived with.
func derives(sum uint64, steps []step, own *uint64) (replies []uint64) {
	var made *uint64
	note := func(v int64) { sum = (sum^uint64(v))*0x9e3779b97f4a7c15 + 1 }
	for i := 0; i < len(steps); i++ {
		s := steps[i]
		switch s.op {
		case opDerive:
			n := uint64(s.n)
			if made = &n; s.at == 8 {
				note(1)
			} else {
				note(int64(abi.ErrArgument))
			}
		case opConstants:
			switch {
			case own == nil:
				note(int64(abi.ErrUnsupported))
				note(0)
			case s.at != 8:
				note(int64(abi.ErrArgument))
				note(0)
			default:
				note(0)
				note(int64(*own))
			}
		case opScratchCount:
			note(1)
		case opForkAs:
			replies = append(replies, derives(sum+uint64(i+1), steps[i+1:][:s.n], made)...)
			note(0)
			i += int(s.n)
		case opForwardAs:
			return append(replies, derives(sum+uint64(i+1), steps[i+1:][:s.n], made)...)
		case opForward:
			return append(replies, derives(sum+uint64(i+1), steps[i+1:][:s.n], own)...)
		}
	}
	return append(replies, sum)
}

// TestDerive: a derived function runs with its constants wherever it goes, derives others, and each function's memory and answers are its own.
func TestDerive(t *testing.T) {
	s := newStreet(t)
	img := stepsImage(t, "derives", withConstants)
	f := s.prepareImage(s.client, img)
	constants := one(opConstants, 8, 0)
	program := slices.Concat(constants, one(opDerive, 8, 7), other(opForkAs, 1, constants), other(opForkAs, 0, slices.Concat(constants, on(2, constants...))),
		one(opDerive, 4, 7), other(opForwardAs, 2, slices.Concat(constants, one(opConstants, 4, 0), one(opDerive, 8, 9), other(opForkAs, 2, constants), other(opForwardAs, 0, constants))))
	want := derives(3, program, nil)
	for range 3 { // the first time everything is made
		fut, err := f.Start(within(t, patience), []inject.Root{{Element: 0, Payload: payload(3, program)}}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		replies, err := wait(t, fut)
		var got []uint64
		for _, r := range replies {
			got = append(got, binary.LittleEndian.Uint64([]byte(r)))
		}
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%x, %v; want %x", got, err, want)
		}
	}
	for i, m := range s.nodes {
		list, _ := m.rt.Functions(100)
		for _, fn := range list {
			if fn.Name == "derives" && (fn.Failed != 0 || fn.Runs == 0) {
				t.Errorf("n%d: %+v", i, fn)
			}
		}
	}
}

// TestDeriveRefused: constants that the manifest does not name, and more functions than a run may name.
func TestDeriveRefused(t *testing.T) {
	s := newStreet(t)
	fails := one(opFail, 0, 0xfff4) // what an author does who passes the status on
	for name, c := range map[string]struct {
		change func(*image.Manifest)
		steps  []step
		says   string
	}{
		"none":      {nil, one(opDerive, 8, 7), "its manifest names no constants"},
		"wrong":     {withConstants, one(opDerive, 4, 7), "4 bytes of constants, the record in its manifest has 8"},
		"unlimited": {withConstants, slices.Concat(manyDerives()...), "a run can name 64 functions besides itself"},
	} {
		f := s.prepareImage(s.client, stepsImage(t, name, c.change))
		fut, err := f.Start(within(t, patience), []inject.Root{{Element: 0, Payload: payload(3, c.steps, fails)}}, inject.Options{})
		if err == nil {
			_, err = wait(t, fut)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func manyDerives() (list [][]step) {
	for i := range 65 {
		list = append(list, one(opDerive, 8, uint16(i)))
	}
	return list
}

// TestManyDerived: of an image only so many derived functions keep machine code of their own, but none that somebody waits for gives way to another.
func TestManyDerived(t *testing.T) {
	const functions = 200
	e := newScripted()
	open := make(chan struct{})
	e.derive = true
	e.load = func(ctx context.Context, c abi.Code) error {
		if c.Constants == nil {
			return nil
		}
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s := newStage(t, e)
	img := signed(t, parentOf(t), s.key)
	answers := make(chan error, functions)
	for i := range functions {
		go func() {
			got, err := s.callWith(img, binary.LittleEndian.AppendUint64(nil, uint64(i)))
			if err == nil && got != "llvm-bitcode" {
				err = fmt.Errorf("answer %q", got)
			}
			answers <- err
		}()
	}
	for end := time.Now().Add(patience / 4); s.node.rt.Wanted() < functions; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d functions wait to be loaded, want %d", s.node.rt.Wanted(), functions)
		}
	}
	close(open)
	for range functions {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	for i := range uint64(2) { // and the next ones make those give way that nobody waits for
		if _, err := s.callWith(img, binary.LittleEndian.AppendUint64(nil, functions+i)); err != nil {
			t.Error(err)
		}
	}
	e.mu.Lock()
	if kept := len(e.loaded) - e.closed; kept > 66 { // with the image's own
		t.Errorf("%d programs are kept", kept)
	}
	e.mu.Unlock()
}

// TestDerivedComesBack: a call that keeps scratch as a derived function finds its own constants when it comes back, though all bindings have gone to others meanwhile.
func TestDerivedComesBack(t *testing.T) {
	s := newStreet(t, func(c *inject.Config) { c.Travel.Bindings = 6 })
	f := s.prepareImage(s.client, stepsImage(t, "returns", func(m *image.Manifest) {
		withConstants(m)
		m.Limits.ScratchBytes = 1 << 16
	}))
	as := func(n uint16, at uint8, steps []step) []step {
		return slices.Concat(one(opDerive, 8, n), other(opForwardAs, at, steps))
	}
	for others := 6; others < 8; others++ {
		program := as(7, 2, on(1, one(opConstants, 8, 0)...))
		for n := range others {
			program = as(uint16(100+n), 2, on(1, slices.Concat(one(opSpin, 0, 15000), program)...)) // until messages are acknowledged, which keep bindings
		}
		program = as(7, 1, slices.Concat(one(opScratchCount, 0, 0), program))
		fut, err := f.Start(within(t, patience), []inject.Root{{Element: 2, Payload: payload(3, program)}}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := wait(t, fut)
		if want := derives(3, program, nil); err != nil || len(got) != 1 || binary.LittleEndian.Uint64([]byte(got[0])) != want[0] {
			t.Errorf("after %d others: %x, %v; want %x", others, got, err, want)
		}
	}
}
