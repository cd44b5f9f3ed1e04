package inject_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

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
