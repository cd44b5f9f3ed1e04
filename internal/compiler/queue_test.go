package compiler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func enter(t *testing.T, q *queue, principal string) *ticket {
	t.Helper()
	ticket, err := q.enter(principal)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func ready(k *ticket) bool {
	select {
	case <-k.ready:
		return true
	default:
		return false
	}
}

// TestFair: a crowd of one principal's delays another's by what is being compiled, not by what waits.
func TestFair(t *testing.T) {
	q := newQueue(1, 16, 64)
	var crowd []*ticket
	for range 10 {
		crowd = append(crowd, enter(t, q, "crowd"))
	}
	if !ready(crowd[0]) || ready(crowd[1]) {
		t.Fatal("one process serves one request at a time, the first first")
	}
	one, two := enter(t, q, "single"), enter(t, q, "single")
	q.leave("crowd", 100*time.Millisecond)
	if !ready(one) || ready(crowd[1]) {
		t.Error("who has used nothing waits behind a crowd")
	}
	q.leave("single", 10*time.Millisecond)
	if !ready(two) {
		t.Error("who has used less waits")
	}
	q.leave("single", 200*time.Millisecond)
	if !ready(crowd[1]) {
		t.Error("who has used more goes first")
	}
	// Who comes late has no claim on time that others used while he did not ask.
	late := []*ticket{enter(t, q, "late"), enter(t, q, "late")}
	q.leave("crowd", 50*time.Millisecond)
	if !ready(late[0]) {
		t.Error("a newcomer waits behind who has used more")
	}
	q.leave("late", 100*time.Millisecond)
	if ready(late[1]) {
		t.Error("a newcomer is served until he has used as much as the others in all their time")
	}
}

func TestBounds(t *testing.T) {
	q := newQueue(1, 2, 3)
	running := enter(t, q, "a")
	first, second := enter(t, q, "a"), enter(t, q, "a")
	_, err := q.enter("a")
	if !errors.Is(err, ErrQueueFull) || !strings.Contains(err.Error(), "2 of a") {
		t.Error(err)
	}
	enter(t, q, "b")
	if _, err = q.enter("c"); !errors.Is(err, ErrQueueFull) || !strings.Contains(err.Error(), "3 of all principals") {
		t.Error(err)
	}
	if !q.abandon(first) || q.abandon(first) || q.abandon(running) {
		t.Error("only who waits can give up, once")
	}
	enter(t, q, "c")
	for range 4 {
		q.leave("a", 0)
	}
	if !ready(second) || ready(first) || q.total != 0 || q.free != 1 {
		t.Errorf("%d wait, %d are free", q.total, q.free)
	}
}

// TestForgets: principals that come once leave nothing behind for ever.
func TestForgets(t *testing.T) {
	q := newQueue(1, 16, 64)
	for i := range 3 * maxAccounts {
		p := fmt.Sprint(i)
		enter(t, q, p)
		q.leave(p, time.Millisecond)
	}
	if len(q.used) > maxAccounts+1 {
		t.Errorf("%d principals are remembered", len(q.used))
	}
}
