package inject_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// made is an element whose one instance at hand is taken, and where a run waits for another, which the engine is making.
type made struct {
	*street
	other *inject.Function // that has an instance at hand there
	run   *inject.Future
	want  []string
	ctx   context.Context // what the engine makes it by
	done  func()          // lets it be there
}

func newMade(t *testing.T) *made {
	t.Helper()
	done := make(chan struct{})
	m := &made{street: newStreet(t), done: sync.OnceFunc(func() { close(done) })}
	m.other = m.prepare(m.client, "other")
	m.ask(payload(1))
	m.ready(0)
	begun := m.begun(0)
	waits := m.start(within(t, time.Hour), 0, payload(1, one(opWait, 0, gate)))
	await(t, begun)
	t.Cleanup(func() {
		m.open(0)
		if _, err := wait(t, waits); err != nil {
			t.Error(err)
		}
	})
	asked := make(chan context.Context, 1)
	m.spies[0].making(func(ctx context.Context) {
		m.spies[0].making(nil)
		asked <- ctx
		<-done
	})
	t.Cleanup(m.done)
	program := payload(7, padding, one(opReply, 0, 64))
	m.want = newModel(houses).play(0, program).results
	m.run = m.start(within(t, time.Hour), 0, program)
	select {
	case m.ctx = <-asked:
	case <-time.After(patience):
		t.Fatal("the engine was asked for no instance")
	}
	return m
}

// ask calls the other function.
func (m *made) ask(program []byte) {
	m.t.Helper()
	if _, err := m.other.Do(within(m.t, 5*shortTime), inject.Root{Element: 0, Payload: program}, nil); err != nil {
		m.t.Fatal(err)
	}
}

// TestInstanceIsMadeAside: while an engine makes an instance, which can take seconds, its element answers others, and the
// run that waits for it gets what it was sent.
func TestInstanceIsMadeAside(t *testing.T) {
	m := newMade(t)
	for range 64 { // into where the run's message was
		m.ask(payload(9, padding, one(opReply, 0, 8)))
	}
	if end, ok := m.ctx.Deadline(); !ok || time.Until(end) > time.Hour {
		t.Errorf("it is made until %v (%v), and the run has an hour", end, ok)
	}
	m.done()
	if got, err := wait(t, m.run); err != nil || !slices.Equal(got, m.want) {
		t.Errorf("%.100q, %v; want %.100q", got, err, m.want)
	}
}

// TestInstanceIsMadeInVain: an instance is not made any longer once nobody wants what was to run in it.
func TestInstanceIsMadeInVain(t *testing.T) {
	m := newMade(t)
	m.run.Cancel()
	select {
	case <-m.ctx.Done():
	case <-time.After(5 * shortTime):
		t.Error("it is still made")
	}
	m.done()
	if _, err := wait(t, m.run); !errors.Is(err, travel.ErrCanceled) {
		t.Error(err)
	}
}
