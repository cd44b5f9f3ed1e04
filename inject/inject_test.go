package inject_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/internal/layer"
)

// member is an element with a runtime, in this process, over real sockets.
type member struct {
	el   *fabric.Element
	rt   *inject.Runtime
	addr string
	eps  map[string]*fabric.Endpoint
}

// auth lets anybody in, with all capabilities.
type auth struct{ caps cluster.Caps }

func (auth) Self() (string, []byte)                         { return "", nil }
func (auth) Lookup(string) ([]byte, fabric.Principal, bool) { return nil, fabric.Principal{}, false }
func (a auth) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{Name: "anybody", Caps: uint32(a.caps)}, true
}

// newMember makes one; changes are made to its configuration.
func newMember(t testing.TB, name string, engine bool, policy fabric.Policy, changes ...func(*inject.Config)) *member {
	t.Helper()
	return newMemberAs(t, fabric.Config{Name: name, Policy: policy, Auth: auth{cluster.CapsAll}}, engine, changes...)
}

// newMemberAs makes one of a configuration, which lacks transports.
func newMemberAs(t testing.TB, as fabric.Config, engine bool, changes ...func(*inject.Config)) *member {
	t.Helper()
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := shm.New(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m := &member{eps: map[string]*fabric.Endpoint{}}
	as.Transports = []fabric.Transport{tr, shared}
	if m.el, err = fabric.New(as); err != nil {
		t.Fatal(err)
	}
	cfg := inject.Config{}
	if engine {
		e, err := wasm.New(wasm.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		cfg.Engines = []abi.Engine{wasm.Runner{Engine: e}}
	}
	for _, change := range changes {
		change(&cfg)
	}
	if m.rt, err = inject.NewRuntime(m.el, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.rt.Close() })
	t.Cleanup(func() { m.el.Close() })
	if engine {
		if m.addr, err = m.el.Listen("tcp://127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// mesh makes n elements that run functions, and a client, all connected.
func mesh(t testing.TB, n int, policy fabric.Policy) (client *member, nodes []*member) {
	t.Helper()
	for i := range n {
		nodes = append(nodes, newMember(t, fmt.Sprintf("n%d", i), true, policy))
	}
	return connect(t, nodes, policy), nodes
}

// connect connects all nodes with each other, and a new client with all of them.
func connect(t testing.TB, nodes []*member, policy fabric.Policy) (client *member) {
	t.Helper()
	client = newMember(t, "client", false, policy)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i, m := range append(append([]*member(nil), nodes...), client) {
		for j, to := range nodes {
			if j < i {
				ep, err := m.el.Dial(ctx, to.addr)
				if err != nil {
					t.Fatal(err)
				}
				m.eps[to.el.Name()] = ep
			}
		}
	}
	return client
}

// permutation spreads a single-cycle permutation over the nodes.
func permutation(t testing.TB, nodes []*member, rows int) (*cluster.Table, []uint64) {
	t.Helper()
	next := make([]uint64, rows)
	for i := range next {
		next[i] = uint64(i)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := rows - 1; i > 0; i-- {
		j := r.IntN(i)
		next[i], next[j] = next[j], next[i]
	}
	table := &cluster.Table{Name: "perm", Version: 1, Kind: cluster.Raw, Sharding: cluster.Sharding{Kind: cluster.Block, Elements: uint32(len(nodes)), Rows: uint64(rows)}}
	for i, m := range nodes {
		first, count := table.Sharding.ElementRows(uint32(i))
		seg, err := m.el.NewSegment(count*8, fabric.Writable)
		if err != nil {
			t.Fatal(err)
		}
		for k := range count {
			binary.LittleEndian.PutUint64(seg.Bytes()[k*8:], next[first+k])
		}
		key, err := seg.Key(fabric.RightRead)
		if err != nil {
			t.Fatal(err)
		}
		table.Shards = append(table.Shards, cluster.Shard{Element: m.el.Name(), Incarnation: m.el.Incarnation(), Addrs: m.el.Addrs(),
			Windows: []cluster.Window{{Key: key, Size: count * 8}}})
	}
	table.FillRows()
	return table, next
}

func TestEcho(t *testing.T) {
	client, nodes := mesh(t, 1, fabric.Balanced)
	f, err := client.rt.Prepare(xrdma.Echo(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range 100 {
		got, err := f.Do(ctx, inject.Root{To: client.eps["n0"], Payload: []byte(fmt.Sprint("hello ", i))}, nil)
		if err != nil || string(got) != fmt.Sprint("hello ", i) {
			t.Fatalf("%d: %q, %v", i, got, err)
		}
	}
	_ = nodes
}

func TestChase(t *testing.T) {
	client, nodes := mesh(t, 4, fabric.Balanced)
	table, next := permutation(t, nodes, 10000)
	f, err := client.rt.Prepare(xrdma.Chase(), table)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range 100 {
		start := uint64(i * 97)
		want := start
		for range 64 {
			want = next[want]
		}
		e, _, _ := table.Owner(start)
		got, err := f.Do(ctx, inject.Root{Element: e, Payload: xrdma.ChaseArgs(start, 64)}, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		if row, err := xrdma.ChaseResult(got); err != nil || row != want {
			t.Fatalf("%d: %d, want %d (%v)", i, row, want, err)
		}
	}
}

// TestNumberOfAnother: a peer's number goes to another once it is free. A function that was called at the first
// by its part of the table must not be sent to the second, and finds the first again when it is back.
func TestNumberOfAnother(t *testing.T) {
	first, second := newMember(t, "first", true, fabric.Balanced), newMember(t, "second", true, fabric.Balanced)
	client := newMember(t, "client", false, fabric.Balanced)
	table, next := permutation(t, []*member{first}, 100)
	f, err := client.rt.Prepare(xrdma.Chase(), table)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	chase := func() error {
		got, err := f.Do(ctx, inject.Root{Element: 0, Payload: xrdma.ChaseArgs(7, 1)}, nil)
		if err != nil {
			return err
		}
		if row, err := xrdma.ChaseResult(got); err != nil || row != next[7] {
			t.Fatalf("row %d, want %d (%v)", row, next[7], err)
		}
		return nil
	}
	dial := func(m *member) *fabric.Endpoint {
		ep, err := client.el.Dial(ctx, m.addr)
		if err != nil {
			t.Fatal(err)
		}
		return ep
	}
	of := func(ep *fabric.Endpoint) uint32 { return ep.Element().Layer(layer.Pass{}).Tag(ep) }
	ep := dial(first)
	if err := chase(); err != nil {
		t.Fatal(err)
	}
	number := of(ep)
	ep.Close()
	if err := chase(); !errors.Is(err, travel.ErrNoPeer) {
		t.Errorf("called at an element that is gone: %v", err)
	}
	if got := of(dial(second)); got != number {
		t.Fatalf("the second has number %d, the first had %d", got, number)
	}
	if err := chase(); !errors.Is(err, travel.ErrNoPeer) {
		t.Errorf("called while another has the number: %v", err)
	}
	dial(first)
	if err := chase(); err != nil {
		t.Errorf("called again where it is back: %v", err)
	}
}
