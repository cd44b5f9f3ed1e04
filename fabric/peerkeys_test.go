package fabric

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestPeerKeys covers what peers narrow: counted for whom it is, freed with it,
// however the keys hang together.
func TestPeerKeys(t *testing.T) {
	e := loneElement(t, 1, Limits{KeysPerPeer: 3})
	seg, err := e.NewSegment(100, Writable)
	if err != nil {
		t.Fatal(err)
	}
	root, err := seg.Key(RightsAll)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := attach(t, e, 2)
	b, _ := attach(t, e, 3)
	narrow := func(by *Endpoint, of Key, want status) Key {
		t.Helper()
		k, st := e.keys.narrow(of.ref(), 0, 8, RightRead, by)
		if st != want {
			t.Fatalf("status %d, want %d", st, want)
		}
		return k
	}
	a1 := narrow(a, root, statusOK)
	a2 := narrow(a, a1, statusOK) // hangs on a1
	b1 := narrow(b, a1, statusOK) // so does another peer's
	b2 := narrow(b, root, statusOK)
	own := narrow(nil, b1, statusOK)
	narrow(a, b2, statusOK) // goes with b
	narrow(a, root, statusPeerKeys)
	if !errors.Is(statusPeerKeys.err(), ErrTooMany) {
		t.Error(statusPeerKeys.err())
	}
	b.fail(ErrPeerLost)
	if e.Holds(b1) || e.Holds(b2) || e.Holds(own) || !e.Holds(a1) || !e.Holds(a2) {
		t.Error("what was lost with a peer is not what it narrowed and what hangs on that")
	}
	if a.narrowed != 2 || b.narrowed != 0 {
		t.Errorf("%d and %d keys are counted, want 2 and 0", a.narrowed, b.narrowed)
	}
	narrow(b, root, statusPeerKeys) // too late
	a3 := narrow(a, root, statusOK)
	if err := e.Revoke(root); err != nil {
		t.Fatal(err)
	}
	if a.narrowed != 0 || e.Holds(a3) || len(e.keys.free) != len(e.keys.slots) {
		t.Errorf("%d keys are counted after all were revoked; %d of %d slots are free", a.narrowed, len(e.keys.free), len(e.keys.slots))
	}
	a.fail(ErrPeerLost)
}

// TestUnhandledMessages covers: a peer that sends what nobody handles does not
// fill the log.
func TestUnhandledMessages(t *testing.T) {
	var log bytes.Buffer
	now := int64(1)
	e, err := New(Config{Name: "lone", Manual: true, Now: func() int64 { return now }, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ep, _ := attach(t, e, 2)
	for range 1000 {
		for range 3 {
			if err := ep.receiver().Frame(FirstMessageID+9, nil); err != nil {
				t.Fatal(err)
			}
		}
		now += int64(time.Millisecond)
	}
	now += int64(time.Second)
	if err := ep.receiver().Frame(FirstMessageID+9, nil); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "count=1 ") || !strings.Contains(lines[1], "count=3000 ") {
		t.Errorf("logged:\n%s", log.String())
	}
}
