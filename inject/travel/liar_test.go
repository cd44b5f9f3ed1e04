package travel_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/inject/travel"
)

// liar is a peer that says whatever it likes of the only future, of which it has the root.
type liar struct {
	*town
	t     *testing.T
	lists byte // sent
}

// Branches that it makes up.
const (
	lieA = 1<<63 | iota
	lieB
	lieC
	lieD
	lieE
)

func newLiar(t *testing.T, l travel.Limits) *liar {
	w := newTown(t, 2, l)
	w.start(t, travel.StartArgs{}, 2)
	w.desks[0].take()
	return &liar{town: w, t: t}
}

func (l *liar) say(kind travel.Kind, body []byte, more ...uint64) {
	l.t.Helper()
	for _, v := range more {
		body = binary.LittleEndian.AppendUint64(body, v)
	}
	if _, err := l.desks[0].core.Recv(l.now, 2, kind, body); err != nil {
		l.t.Fatal(err)
	}
}

// list says that a branch forked others.
func (l *liar) list(branch uint64, forks ...uint64) {
	l.t.Helper()
	body := binary.LittleEndian.AppendUint64([]byte{1, l.lists, 0, 0, 1, 0, 0, 0, 0}, branch)
	if branch == 0 {
		body = []byte{0, l.lists, 0, 0, 1, 0, 0, 0, 0}
	}
	l.lists++
	l.say(travel.KindList, append(body, 0, 0, 0, 0), forks...)
}

// done says that a branch has ended, which made no list, or one.
func (l *liar) done(branch uint64, lists byte) {
	l.t.Helper()
	body := []byte{0, 1, 0, 0, 0, 0}
	if branch != 0 {
		body[0] |= 1
		body = binary.LittleEndian.AppendUint64(body, branch)
	}
	if lists > 0 {
		body[0] |= 16
		body = append(body, 0, 0, 0, 0, lists, 0, 0, 0)
	}
	l.say(travel.KindDone, body)
}

// lost says that a branch is lost.
func (l *liar) lost(branch uint64) {
	l.t.Helper()
	body := binary.LittleEndian.AppendUint64([]byte{1, byte(travel.CodePeerLost), 1, 0, 0, 0, 0}, branch)
	l.say(travel.KindLost, append(binary.LittleEndian.AppendUint64(body, 2), 1, 'b'))
}

// TestLiar: whatever a peer says of who made which branch, the origin comes to an end with it.
func TestLiar(t *testing.T) {
	for name, c := range map[string]struct {
		branches uint32
		tell     func(l *liar)
		want     error // of the future; nil: it has not ended
	}{
		"a list of a branch that has ended": {4, func(l *liar) {
			l.list(0, lieA, lieB)
			l.done(lieA, 0)
			l.done(lieB, 0)
			l.list(lieA, lieC, lieD, lieE) // A would be forgotten on the way, to make room
			l.done(lieC, 0)
			l.lost(lieC)
		}, nil},
		"a branch that made itself": {0, func(l *liar) {
			l.list(lieA, lieA)
			l.list(0, lieB)
			l.done(lieB, 0)
			l.lost(lieB)
		}, nil},
		"a circle, to be forgotten": {4, func(l *liar) {
			l.list(lieA, lieB)
			l.list(lieB, lieA)
			l.done(lieA, 1)
			l.done(lieB, 1)
			l.list(0, lieC, lieD)
			l.lost(lieA) // it is known no more
		}, travel.ErrPeerLost},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiar(t, travel.Limits{Branches: c.branches})
			c.tell(l)
			if ended := l.desks[0].ended; len(ended) > 1 || (len(ended) == 1) != (c.want != nil) || c.want != nil && !errors.Is(ended[0].Err, c.want) {
				t.Errorf("it ended with %v, want %v", ended, c.want)
			}
			if len(l.desks[0].ended) == 0 {
				l.desks[0].core.Cancel(l.now, 1)
			}
			if n := l.desks[0].core.Sizes().Futures; n != 0 {
				t.Errorf("%d futures are left", n)
			}
		})
	}
}
