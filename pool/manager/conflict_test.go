package manager

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// bench runs a Core on a real store; components take whatever they are told. What hold passes waits until it is let go.
type bench struct {
	t       *testing.T
	store   *cluster.Memory
	core    *Core
	now     time.Duration
	after   cluster.Revision
	hold    func(e any) bool
	held    []any
	told    []Tell
	refuse  func(e Tell) error
	blind   bool // the store's changes are not told of
	replies map[uint64]Reply
}

func newBench(t *testing.T, components ...string) *bench {
	b := &bench{t: t, store: cluster.NewMemory()}
	for _, name := range components {
		b.enter(name, "sim://"+name)
	}
	b.start("m")
	return b
}

// start starts a manager at the store.
func (b *bench) start(name string) {
	b.core, b.replies = New(Config{Member: cluster.Member{Name: name}, Incarnation: 1, Store: "memory"}), map[uint64]Reply{}
	b.core.Tick(0)
	b.turn()
	for range 80 { // until those that are not there count as lost
		b.tick()
	}
}

func (b *bench) enter(name, addr string) {
	text, err := json.Marshal(Component{Member: cluster.Member{Name: name, Addrs: []string{addr}}, Incarnation: 1, Capacity: 1 << 30})
	if err != nil {
		b.t.Fatal(err)
	}
	b.commit(cluster.Txn{Put: []cluster.Pair{{Key: keyComponent + name, Value: text}}})
}

func (b *bench) commit(t cluster.Txn) {
	if _, err := b.store.Commit(b.t.Context(), t); err != nil {
		b.t.Fatal(err)
	}
}

// leaves removes a component's entry, and lets it have its time to come back.
func (b *bench) leaves(name string) {
	b.commit(cluster.Txn{Remove: []string{keyComponent + name}})
	b.turn()
	for range 1 + graceTime/(100*time.Millisecond) {
		b.tick()
	}
}

func (b *bench) tick() {
	b.now += 100 * time.Millisecond
	b.core.Tick(b.now)
	b.turn()
}

// turn carries out what the Core wants, and tells of changes, until there is no more.
func (b *bench) turn() {
	for range 1000 {
		effects := b.core.Effects()
		for _, e := range effects {
			if b.hold != nil && b.hold(e) {
				b.held = append(b.held, e)
			} else {
				b.carryOut(e)
			}
		}
		ended, cancel := context.WithCancel(b.t.Context())
		cancel()
		list, at, err := b.store.Watch(ended, prefix, b.after)
		if b.blind {
			list = nil
		} else if err == nil && b.after != 0 {
			b.after = at
			b.core.Changed(b.now, list, at)
		}
		if len(effects) == 0 && len(list) == 0 {
			return
		}
	}
	b.t.Fatal("it goes on without an end")
}

func (b *bench) carryOut(e any) {
	ctx := b.t.Context()
	switch e := e.(type) {
	case Commit:
		rev, err := b.store.Commit(ctx, e.Txn)
		b.core.Committed(b.now, e.ID, rev, err)
	case Lease:
		l, err := b.store.Lease(ctx, time.Hour)
		b.core.Leased(b.now, e.ID, l, err)
	case Renew:
		b.core.Renewed(b.now, e.ID, b.store.Renew(ctx, e.Lease))
	case Load:
		list, rev, err := b.store.Get(ctx, e.Prefix)
		b.after = max(b.after, rev)
		b.core.Loaded(b.now, e.ID, list, rev, err)
	case Sync:
		list, _, err := b.store.Get(ctx, e.Prefix)
		b.core.Synced(b.now, list, err)
	case Tell:
		b.told = append(b.told, e)
		var err error
		if b.refuse != nil {
			err = b.refuse(e)
		}
		b.core.Told(b.now, e.ID, &pool.HeldReply{}, err)
	case Reply:
		b.replies[e.Ticket] = e
	}
}

var ann = cluster.Principal{Name: "ann", Caps: cluster.CapRead | cluster.CapWrite}

func (b *bench) ask(ticket uint64, body any) {
	b.core.Ask(b.now, Request{Ticket: ticket, Who: ann, Body: body})
	b.turn()
}

// want waits for an answer.
func (b *bench) want(ticket uint64) any {
	b.t.Helper()
	for range 30 {
		if r, ok := b.replies[ticket]; ok {
			if r.Err != nil {
				b.t.Fatal(r.Err)
			}
			return r.Answer
		}
		b.tick()
	}
	b.t.Fatalf("request %d has no answer", ticket)
	return nil
}

// TestConflictOfRegion: a decision about extents that another change of its region overtakes is taken anew, and keeps nothing else from being decided.
func TestConflictOfRegion(t *testing.T) {
	b := newBench(t, "c0", "c1")
	b.ask(1, pool.CreateRequest{Name: "x", Size: 128 << 20})
	if table := b.want(1).(*pool.Table); len(table.Members) != 2 {
		t.Fatalf("%+v", table)
	}
	b.hold = func(e any) bool { _, ok := e.(Commit); return ok }
	b.leaves("c0")
	if len(b.held) != 1 {
		t.Fatalf("the loss is to be committed: %+v", b.held)
	}
	b.ask(2, DestroyRequest{pool.NameRequest{Name: "x"}})
	if len(b.held) != 2 {
		t.Fatalf("and the end of the region: %+v", b.held)
	}
	b.hold = nil
	for _, e := range b.held {
		b.carryOut(e)
	}
	b.want(2)
	b.ask(3, pool.CreateRequest{Name: "y", Size: 1})
	b.want(3)
}

// TestBackInTime: a component that has registered again is not called lost by a manager that has not heard of it, nor is what it holds.
func TestBackInTime(t *testing.T) {
	b := newBench(t, "c0", "c1")
	b.ask(1, pool.CreateRequest{Name: "x", Size: 128 << 20})
	epoch := b.want(1).(*pool.Table).Epoch
	b.hold = func(e any) bool { _, ok := e.(Commit); return ok }
	b.leaves("c0")
	if len(b.held) != 1 {
		t.Fatalf("the loss is to be committed: %+v", b.held)
	}
	b.blind = true
	b.enter("c0", "sim://c0")
	b.hold = nil
	b.carryOut(b.held[0])
	b.blind = false
	for range 10 {
		b.tick()
	}
	b.ask(2, pool.LookupRequest{NameRequest: pool.NameRequest{Name: "x"}})
	if table := b.want(2).(*pool.Table); table.Epoch != epoch || len(table.Members) != 2 {
		t.Errorf("%+v", table)
	}
}

// TestLossIsKnown: once one manager has named a loss, no other one answers as if there were none, however late it hears of the store's changes.
func TestLossIsKnown(t *testing.T) {
	b := newBench(t, "c0", "c1")
	b.ask(1, pool.CreateRequest{Name: "x", Size: 128 << 20})
	b.want(1)
	other := &bench{t: t, store: b.store}
	other.start("n")
	b.blind = true
	other.leaves("c0")
	stat := StatRequest{pool.NameRequest{Name: "x"}}
	other.ask(1, stat)
	if i := other.want(1).(*pool.Info); !slices.Equal(i.Lost, []string{"c0"}) {
		t.Fatalf("the manager that saw the loss says %+v", i)
	}
	b.ask(2, stat)
	if r, early := b.replies[2]; early {
		t.Fatalf("a manager that has not heard of it says %+v, %v", r.Answer, r.Err)
	}
	b.blind = false
	b.turn()
	if i := b.want(2).(*pool.Info); !slices.Equal(i.Lost, []string{"c0"}) {
		t.Errorf("once it has: %+v", i)
	}
}

// TestRefusedGrowth: a region whose growth a component refuses is what it was before, also where nobody waits for it any more.
func TestRefusedGrowth(t *testing.T) {
	b := newBench(t, "c0", "c1")
	b.ask(1, pool.CreateRequest{Name: "x", Size: 1})
	b.want(1)
	b.refuse = func(e Tell) error {
		if r, ok := e.Req.(*pool.ReserveRequest); ok && r.Size > 64<<10 {
			return pool.ErrMemory
		}
		return nil
	}
	b.hold = func(e any) bool { _, ok := e.(Tell); return ok }
	b.ask(2, pool.ResizeRequest{NameRequest: pool.NameRequest{Name: "x"}, Size: 1 << 20})
	if len(b.held) == 0 {
		t.Fatal("no component is told")
	}
	for range 1 + jobTime/(100*time.Millisecond) {
		b.tick()
	}
	if err := b.replies[2].Err; !errors.Is(err, ErrTime) {
		t.Fatalf("nobody answered: %v", err)
	}
	b.hold = nil
	for _, e := range b.held {
		b.carryOut(e)
	}
	b.ask(3, pool.LookupRequest{NameRequest: pool.NameRequest{Name: "x"}})
	if table := b.want(3).(*pool.Table); table.Size != 64<<10 || len(table.Parts) != 1 {
		t.Errorf("%+v", table)
	}
}

// TestEpochOfGrants: whatever components are told of a region, what was said before is of a lower epoch.
func TestEpochOfGrants(t *testing.T) {
	b := newBench(t, "c0")
	b.ask(1, pool.CreateRequest{Name: "x", Size: 1})
	for i, rights := range []string{"rw", "r", "none"} {
		b.ask(uint64(2+i), pool.GrantRequest{NameRequest: pool.NameRequest{Name: "x"}, To: "bob", Rights: rights})
		b.want(uint64(2 + i))
	}
	last := uint64(0)
	for _, e := range b.told {
		if r, ok := e.Req.(*pool.ReserveRequest); ok {
			if r.Epoch <= last {
				t.Errorf("grants %v under epoch %d, after %d", r.Grants, r.Epoch, last)
			}
			last = r.Epoch
		}
	}
	if last == 0 {
		t.Error("nobody was told of anything")
	}
}

// TestMembers: whoever registers is told of all who are there, whether the manager has heard of them one by one or all at once.
func TestMembers(t *testing.T) {
	b := newBench(t, "b")
	ticket, seen := uint64(0), cluster.Revision(0)
	register := func() []cluster.Member {
		t.Helper()
		ticket++
		b.core.Register(b.now, ticket, RegisterRequest{Member: cluster.Member{Name: "z", Addrs: []string{"sim://z"}}, Incarnation: 1, Seen: seen})
		b.turn()
		r := b.want(ticket).(*RegisterReply)
		seen = r.Members
		return r.Nodes
	}
	if l := register(); len(l) != 2 {
		t.Fatalf("%+v", l)
	}
	for _, name := range []string{"a", "c"} {
		b.enter(name, "sim://"+name)
		b.core.Reload()
		b.turn()
		var names []string
		for _, m := range register() {
			names = append(names, m.Name)
		}
		if !slices.Contains(names, name) {
			t.Errorf("%s came, and %q are there", name, names)
		}
	}
	if l := register(); l != nil {
		t.Errorf("nothing has changed: %+v", l)
	}
}

// TestLoad: managers place less where a component is busy, and Top says what each lends, what is taken and how busy it is: as of the last report
// that told of a change.
func TestLoad(t *testing.T) {
	b := newBench(t, "gone")
	b.commit(cluster.Txn{Remove: []string{keyComponent + "gone"}})
	b.turn()
	ticket := uint64(0)
	leases := map[string]cluster.Lease{}
	report := func(name string, load int, local uint64) {
		t.Helper()
		ticket++
		b.core.Register(b.now, ticket, RegisterRequest{Member: cluster.Member{Name: name, Addrs: []string{"sim://" + name}}, Incarnation: 1,
			Capacity: 1 << 30, Local: local, Load: load, Lease: leases[name]})
		b.turn()
		leases[name] = b.want(ticket).(*RegisterReply).Lease
	}
	top := func() map[string]TopComponent {
		t.Helper()
		ticket++
		b.ask(ticket, TopRequest{})
		all := map[string]TopComponent{}
		for _, c := range b.want(ticket).(*Top).Components {
			all[c.Name] = c
		}
		return all
	}
	report("busy", 90, 0)
	report("idle", 3, 128<<20)
	ticket++
	b.ask(ticket, pool.CreateRequest{Name: "x", Size: 64 << 20})
	if table := b.want(ticket).(*pool.Table); len(table.Members) != 1 || table.Parts[0].Component != "idle" {
		t.Errorf("placed at %+v, and one component is busy", table.Members)
	}
	for name, want := range map[string]TopComponent{"busy": {Component: Component{Capacity: 1 << 30, Load: 90}, Free: 1 << 30},
		"idle": {Component: Component{Capacity: 1 << 30, Local: 128 << 20, Load: 3}, Placed: 64 << 20, Free: 1<<30 - 192<<20, Extents: 1}} {
		got := top()[name]
		want.Member, want.Incarnation = got.Member, got.Incarnation
		if got.Name != name || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	report("busy", 0, 0)
	report("idle", 95, 128<<20)
	if all := top(); all["busy"].Load != 0 || all["idle"].Load != 95 {
		t.Errorf("after both have changed: %+v", all)
	}
	ticket++
	b.ask(ticket, pool.CreateRequest{Name: "y", Size: 64 << 20})
	if table := b.want(ticket).(*pool.Table); table.Parts[0].Component != "busy" {
		t.Errorf("placed at %+v, and the other one is idle now", table.Members)
	}
}

// TestUnseenRenewal: a manager that has to read the store anew keeps the leases of those that ask it meanwhile, and says nothing else that it cannot know.
func TestUnseenRenewal(t *testing.T) {
	b := newBench(t, "other")
	me := RegisterRequest{Member: cluster.Member{Name: "c", Addrs: []string{"sim://c"}}, Incarnation: 1, Capacity: 1 << 30}
	register := func(ticket uint64) Reply {
		b.core.Register(b.now, ticket, me)
		b.turn()
		return b.replies[ticket]
	}
	first, ok := register(1).Answer.(*RegisterReply)
	if !ok || first.Lease == 0 || len(first.Managers) != 1 || len(first.Nodes) != 2 {
		t.Fatalf("%+v", b.replies[1])
	}
	me.Lease, me.Seen = first.Lease, first.Members
	b.hold = func(e any) bool { _, load := e.(Load); return load }
	b.core.Reload()
	if r, ok := register(2).Answer.(*RegisterReply); !ok || r.Lease != me.Lease || r.Members != me.Seen || r.Nodes != nil || r.Managers != nil {
		t.Errorf("without a view: %+v", b.replies[2])
	}
	if err := b.store.End(t.Context(), me.Lease); err != nil {
		t.Fatal(err)
	}
	if r := register(3); r.Answer != nil || !errors.Is(r.Err, cluster.ErrAway) {
		t.Errorf("without a view and a lease: %+v", r)
	}
	b.hold = nil
	for _, e := range b.held {
		b.carryOut(e)
	}
	if r, ok := register(4).Answer.(*RegisterReply); !ok || r.Lease == me.Lease || len(r.Managers) != 1 || r.Nodes != nil {
		t.Errorf("with a view again: %+v", b.replies[4])
	}
}
