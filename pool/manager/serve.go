package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

const (
	// tickTime is how often a Core is told how late it is.
	tickTime = 100 * time.Millisecond
	// tellTime bounds a call to a component: making an extent of 1 GiB takes a small part of it.
	tellTime = 5 * time.Second
	// maxTells bounds the calls to components that are under way at once.
	maxTells = 256
	// storeTime bounds a call to the store,
	storeTime = 5 * time.Second
	// and a renewal's call a renewTime: the next one may reach another leader while there is still time. etcd's members hand renewals to whom they take
	// for their leader, and wait where that one stands still.
	renewTime = RenewTime * 3 / 4
)

// Manager runs a Core on a store and on connections. Its methods may be called from any goroutine.
type Manager struct {
	store cluster.Store
	ask   pool.Asker
	log   *slog.Logger
	began time.Time
	life  context.Context
	end   context.CancelFunc
	work  sync.WaitGroup
	tells chan struct{} // has one for each call to a component under way

	mu      sync.Mutex
	closed  bool
	core    *Core
	after   cluster.Revision // changes up to it were told
	whole   chan struct{}    // closed once after is known
	ticket  uint64
	replies map[uint64]chan Reply
	said    error // of the store, logged last
}

// Start runs a manager. ask is how it reaches components, by name.
func Start(cfg Config, store cluster.Store, ask pool.Asker, log *slog.Logger) *Manager {
	m := &Manager{store: store, ask: ask, log: log, began: time.Now(), tells: make(chan struct{}, maxTells), core: New(cfg), whole: make(chan struct{}),
		replies: map[uint64]chan Reply{}}
	m.life, m.end = context.WithCancel(context.Background())
	m.work.Go(m.watch)
	m.work.Go(func() {
		t := time.NewTicker(tickTime)
		defer t.Stop()
		for m.life.Err() == nil {
			m.with(func(now time.Duration) { m.core.Tick(now) })
			select {
			case <-t.C:
			case <-m.life.Done():
			}
		}
	})
	return m
}

// Close ends the manager. Its entry in the store ends with its lease, or with the store's connection.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.end()
	m.work.Wait()
}

// with runs something on the Core and carries out what it wants.
func (m *Manager) with(do func(now time.Duration)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	do(time.Since(m.began))
	for _, e := range m.core.Effects() {
		if r, ok := e.(Reply); ok {
			if to := m.replies[r.Ticket]; to != nil {
				delete(m.replies, r.Ticket)
				to <- r // it has room for one
			}
			continue
		}
		m.work.Go(func() { m.carryOut(e) })
	}
}

// errClosed: the manager ends, and what it has begun another one goes on with.
var errClosed = fmt.Errorf("%w: this manager ends: ask another one", ErrTime)

// request begins something with a ticket and waits for its reply.
func (m *Manager) request(ctx context.Context, begin func(now time.Duration, ticket uint64)) (any, error) {
	to := make(chan Reply, 1)
	var ticket uint64
	m.with(func(now time.Duration) {
		m.ticket++
		ticket = m.ticket
		m.replies[ticket] = to
		begin(now, ticket)
	})
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.replies, ticket)
	}()
	select {
	case r := <-to:
		return r.Answer, r.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-m.life.Done():
		return nil, errClosed
	}
}

// Do carries out a request. from is the connection that it came over, if Gone is told of its end.
func (m *Manager) Do(ctx context.Context, who cluster.Principal, from uint64, body any) (any, error) {
	left := time.Duration(0)
	if at, ok := ctx.Deadline(); ok {
		left = max(time.Until(at)-100*time.Millisecond, time.Millisecond) // so that the reason comes before the deadline
	}
	return m.request(ctx, func(now time.Duration, ticket uint64) {
		m.core.Ask(now, Request{Ticket: ticket, Who: who, From: from, Time: left, Body: body})
	})
}

// Register takes what a component says of itself.
func (m *Manager) Register(ctx context.Context, req *RegisterRequest) (*RegisterReply, error) {
	answer, err := m.request(ctx, func(now time.Duration, ticket uint64) { m.core.Register(now, ticket, *req) })
	reply, _ := answer.(*RegisterReply)
	return reply, err
}

// Gone says that a connection has ended.
func (m *Manager) Gone(from uint64) {
	m.with(func(now time.Duration) { m.core.Gone(now, from) })
}

// carryOut does what the Core wants and tells it of the outcome.
func (m *Manager) carryOut(e any) {
	ctx, cancel := context.WithTimeout(m.life, storeTime)
	defer cancel()
	var err error
	switch e := e.(type) {
	case Commit:
		var rev cluster.Revision
		rev, err = m.store.Commit(ctx, e.Txn)
		m.with(func(now time.Duration) { m.core.Committed(now, e.ID, rev, err) })
	case Lease:
		var l cluster.Lease
		l, err = m.store.Lease(ctx, LeaseTime)
		m.with(func(now time.Duration) { m.core.Leased(now, e.ID, l, err) })
	case Renew:
		short, end := context.WithTimeout(ctx, renewTime)
		err = m.store.Renew(short, e.Lease)
		end()
		m.with(func(now time.Duration) { m.core.Renewed(now, e.ID, err) })
	case Load:
		err = m.load(ctx, e)
	case Sync:
		var list []cluster.Pair
		list, _, err = m.store.Get(ctx, e.Prefix)
		m.with(func(now time.Duration) { m.core.Synced(now, list, err) })
	case Tell:
		m.tell(e)
		return
	}
	m.say(err)
}

func (m *Manager) load(ctx context.Context, e Load) error {
	list, rev, err := m.store.Get(ctx, e.Prefix)
	m.with(func(now time.Duration) {
		if err == nil {
			if m.after == 0 {
				close(m.whole)
			}
			m.after = max(m.after, rev)
		}
		m.core.Loaded(now, e.ID, list, rev, err)
	})
	return err
}

// say logs that the store is away, and that it is back, once each.
func (m *Manager) say(err error) {
	if err != nil && !errors.Is(err, cluster.ErrAway) || m.life.Err() != nil {
		return
	}
	m.mu.Lock()
	was := m.said
	m.said = err
	m.mu.Unlock()
	switch {
	case err != nil && was == nil:
		m.log.Warn("the cluster's store gives no answer: regions that are open go on, and none can be made or looked up until it does", "err", err)
	case err == nil && was != nil:
		m.log.Info("the cluster's store answers again")
	}
}

// tell makes a call to a component, in its turn.
func (m *Manager) tell(e Tell) {
	var reply any = new(pool.Nothing)
	if e.Call == pool.CallHeld {
		reply = new(pool.HeldReply)
	}
	select {
	case m.tells <- struct{}{}:
		defer func() { <-m.tells }()
	case <-m.life.Done():
		return
	}
	ctx, cancel := context.WithTimeout(m.life, tellTime)
	defer cancel()
	_, err := m.ask.Ask(ctx, e.Component, e.Call, e.Req, reply)
	if err != nil {
		m.log.Debug("component not told", "component", e.Component, "call", e.Call, "err", err)
	}
	m.with(func(now time.Duration) { m.core.Told(now, e.ID, reply, err) })
}

// watch tells the Core of changes in the store.
func (m *Manager) watch() {
	select {
	case <-m.whole:
	case <-m.life.Done():
		return
	}
	for m.life.Err() == nil {
		m.mu.Lock()
		after := m.after
		m.mu.Unlock()
		list, at, err := m.store.Watch(m.life, prefix, after)
		switch {
		case err == nil:
			m.with(func(now time.Duration) {
				m.after = max(m.after, at)
				m.core.Changed(now, list, at)
			})
			continue
		case errors.Is(err, cluster.ErrCompacted):
			m.with(func(time.Duration) { m.core.Reload() })
		}
		m.say(err)
		select {
		case <-time.After(retryTime):
		case <-m.life.Done():
		}
	}
}
