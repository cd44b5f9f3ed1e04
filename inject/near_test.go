package inject_test

import (
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
)

// TestGetNear: a function reads what others on this machine have, and is told of what is elsewhere that it is far, without having waited.
func TestGetNear(t *testing.T) {
	for _, transport := range []string{"shm", "tcp"} {
		all := &streets{t: t, transport: transport}
		for _, steps := range [][][]step{
			{one(opGetNear, 0, 1)},
			{one(opPut, 1, 1), one(opGetNear, 1, 1), one(opGetNear, 2, 1), one(opGetNear, 0, words-1)},
			{one(opAdd, 1, 3), on(1, append(one(opGetNear, 1, 3), one(opGetNear, 0, 3)...)...)},
			{one(opPut, 2, 1), fork(1, one(opGetNear, 2, 1)...), one(opGetNear, 2, 1)},
		} {
			s := all.get()
			s.idle()
			s.clear()
			program := payload(7, steps...)
			want := newModel(houses)
			want.near = transport == "shm"
			want.play(0, program)
			results, err := wait(t, s.start(within(t, patience), 0, program))
			if d := want.matches(results, err); d != "" {
				t.Errorf("%s: %v: %s", transport, steps, d)
			}
		}
		all.get().quiet()
	}
}

// TestGetNearStays: where all is far nothing is asked and nobody waits, so that the run is a visit to its end.
func TestGetNearStays(t *testing.T) {
	all := &streets{t: t, transport: "tcp"}
	if seen := visited(t, all, 0, payload(1, one(opGetNear, 1, 1), one(opGetNear, 2, 1))); !seen.stays {
		t.Error("get_near of what is far is no visit any more as the function returns")
	}
}

// TestGetNearErrors: what get refuses, get_near refuses where it is near; far elements are far whatever is asked of them.
func TestGetNearErrors(t *testing.T) {
	for transport, want := range map[string]map[uint16]abi.Status{
		"shm": {0: abi.OK, words: abi.ErrArgument},
		"tcp": {0: abi.ErrFar, words: abi.ErrFar},
	} {
		s := newStreetOver(t, transport)
		for n, st := range want {
			m := &modelRun{sum: 5}
			m.note(asNoted(st))
			m.note(0)
			got, err := s.prepare(s.client, fmt.Sprint("near", n)).Do(within(t, patience), inject.Root{Payload: payload(5, one(opGetNear, 1, n), one(opReply, 0, 8))}, nil)
			if err != nil || string(got) != string(m.bytes(8)) {
				t.Errorf("%s: word %d: %x, %v; want %x for %v", transport, n, got, err, m.bytes(8), st)
			}
		}
	}
}
