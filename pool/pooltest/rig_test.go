package pooltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/internal/seeds"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/component"
	"github.com/wherry-fabric/wherry/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A factory makes the transport of one element, and says where an element that has it can listen.
type factory func() (t fabric.Transport, listen string, err error)

var trials = seeds.Flags("./pool/pooltest")

// overAll runs a test over every transport. Those over sim lose, double and reorder packets.
func overAll(t *testing.T, fn func(t *testing.T, f factory)) {
	t.Run("tcp", func(t *testing.T) {
		fn(t, func() (fabric.Transport, string, error) {
			tr, err := tcp.New(tcp.Config{})
			return tr, "tcp://127.0.0.1:0", err
		})
	})
	t.Run("shm", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "pool") // short, for a socket's path has 108 bytes at most
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		var n atomic.Int32 // cases make their elements side by side
		fn(t, func() (fabric.Transport, string, error) {
			tr, err := shm.New(shm.Config{})
			return tr, "shm://" + filepath.Join(dir, fmt.Sprint(n.Add(1))), err
		})
	})
	t.Run("sim", func(t *testing.T) {
		trials.Each(t, 1, func(seed uint64, fail seeds.Fail) {
			l := sim.NewLive(seed, sim.WireFaults{MinDelay: 2 * time.Microsecond, MaxDelay: 60 * time.Microsecond, Loss: 0.01, Duplicate: 0.1,
				Detect: time.Millisecond, Lag: 20 * time.Microsecond, Room: 64, Burst: 4, Pieces: 0.3, Descriptors: seed%2 == 0})
			fn(t, l.Port)
			if t.Failed() {
				fail("%v", l)
			}
		})
	})
}

// lent is what each component of a rig lends.
const lent = 512 << 20

// names of the principals of a rig.
const (
	ann = "ann" // may write
	bob = "bob" // may write
	eve = "eve" // may read only
	sys = "sys" // a member: a node, or a manager
)

// rig is some components, and clients of them.
type rig struct {
	t      *testing.T
	f      factory
	tokens *cluster.Tokens
	nodes  map[string]*station
	sys    *station
	names  atomic.Uint32 // given to regions by cases that run side by side

	mu      sync.Mutex
	managed map[uint16]*pool.Table
	last    uint16
}

// station is an element of a rig.
type station struct {
	rig  *rig
	el   *fabric.Element
	rpc  *rpc.Peer
	addr string // of a component
	pool *component.Component
	book *component.Account

	mu  sync.Mutex
	eps map[string]*fabric.Endpoint
}

func newRig(t *testing.T, f factory, names ...string) *rig {
	t.Helper()
	r := &rig{t: t, f: f, nodes: map[string]*station{}, managed: map[uint16]*pool.Table{}, last: pool.FirstManaged}
	var list []cluster.Token
	for name, caps := range map[string]cluster.Caps{ann: cluster.CapWrite | cluster.CapRead, bob: cluster.CapWrite | cluster.CapRead, eve: cluster.CapRead, sys: cluster.CapMember | cluster.CapRead} {
		tok, err := cluster.NewToken(name, caps)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, tok)
	}
	var err error
	if r.tokens, err = cluster.NewTokens(list); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		s := r.station(name, sys)
		r.nodes[name] = s
		l := component.Limits{}
		s.book = component.NewAccount(l.Bounds(lent, lent))
		s.pool = component.New(s.el, s.book, l)
		s.el.Watch(func(*fabric.Endpoint) {}, func(ep *fabric.Endpoint, _ error) { s.pool.Abandoned(ep) })
		err := control.ServePool(s.rpc, s.pool, slog.New(slog.DiscardHandler), func() error { return nil })
		if err == nil {
			err = control.ServePull(s.rpc, s.pool, s.reach)
		}
		if err == nil {
			s.addr, err = s.el.Listen(s.addr)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.sys = r.station("manager", sys)
	return r
}

// station makes an element that speaks as a principal.
func (r *rig) station(name, principal string) *station {
	r.t.Helper()
	tr, addr, err := r.f()
	if err != nil {
		r.t.Fatal(err)
	}
	auth, err := control.NewAuth(r.tokens, principal)
	if err != nil {
		r.t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{tr}, Auth: auth})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { el.Close() })
	s := &station{rig: r, el: el, addr: addr, eps: map[string]*fabric.Endpoint{}}
	if s.rpc, err = rpc.New(el, rpc.Config{}); err != nil {
		r.t.Fatal(err)
	}
	return s
}

// client is a principal's view of the pool.
func (r *rig) client(principal string) *pool.Pool {
	r.t.Helper()
	return newPool(r.station("client-"+principal, principal))
}

func newPool(s *station) *pool.Pool { return pool.New(&asker{control.NewAsker(s.rpc, s.reach), s}) }

// reach is the connection to a component.
func (s *station) reach(ctx context.Context, name string) (*fabric.Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ep := s.eps[name]; ep != nil {
		return ep, nil
	}
	to := s.rig.nodes[name]
	if to == nil {
		return nil, fmt.Errorf("%w: %q", control.ErrNoNode, name)
	}
	ep, err := s.el.Dial(ctx, to.addr)
	if err == nil {
		s.eps[name] = ep
	}
	return ep, err
}

// asker asks the rig's own manager where managers are asked.
type asker struct {
	pool.Asker
	s *station
}

func (a *asker) Ask(ctx context.Context, name, call string, req, reply any) (*fabric.Endpoint, error) {
	if name != pool.Manager {
		return a.Asker.Ask(ctx, name, call, req, reply)
	}
	own := a.s.el.Name()[len("client-"):]
	answer, err := a.s.rig.manage(ctx, own, call, req)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(answer) // as it would travel
	if err == nil {
		err = json.Unmarshal(b, reply)
	}
	return nil, err
}

// part is how large an extent is that the rig's manager places: small ones, so that operations meet their borders.
const part = 4 * fabric.SegmentAlign

// manage is the least manager that there can be: extents go to the components in turn.
func (r *rig) manage(ctx context.Context, who, call string, req any) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch q := req.(type) {
	case pool.CreateRequest:
		r.last++
		t := &pool.Table{Info: pool.Info{Region: r.last, Epoch: 1, Made: 1, Name: q.Name, Owner: who, Leased: q.Leased}}
		r.managed[r.last] = t
		return t, r.place(ctx, t, q.Size)
	case pool.LookupRequest:
		return r.lookup(q.NameRequest)
	case pool.ResizeRequest:
		t, err := r.lookup(q.NameRequest)
		if err == nil {
			err = r.place(ctx, t, q.Size)
		}
		return t, err
	case pool.GrantRequest:
		t, err := r.lookup(q.NameRequest)
		if err == nil {
			t.Grants = map[string]string{q.To: q.Rights}
			err = r.place(ctx, t, t.Size)
		}
		return pool.Nothing{}, err
	case pool.NameRequest:
		t, err := r.lookup(q)
		if err != nil {
			return nil, err
		}
		for name := range r.nodes {
			err = errors.Join(err, r.ask(ctx, name, pool.CallRelease, pool.ReleaseRequest{Region: t.Region, Epoch: t.Epoch}))
		}
		delete(r.managed, t.Region)
		return pool.Nothing{}, err
	}
	return nil, fmt.Errorf("%s is not served", call)
}

func (r *rig) lookup(q pool.NameRequest) (*pool.Table, error) {
	for _, t := range r.managed {
		if q.Name != "" && t.Name == q.Name || q.Name == "" && t.Region == q.Region {
			return t, nil
		}
	}
	return nil, fmt.Errorf("%w: %v", pool.ErrNoRegion, q)
}

// place makes a region have size bytes, under the next epoch.
func (r *rig) place(ctx context.Context, t *pool.Table, size uint64) error {
	t.Size = (size + fabric.SegmentAlign - 1) &^ (fabric.SegmentAlign - 1)
	t.Epoch++
	have := map[uint64]pool.Extent{}
	for _, e := range t.Parts {
		have[e.Off] = e
	}
	t.Parts = nil
	byName := map[string][]pool.Range{}
	for off := uint64(0); off < t.Size; off += part {
		name := fmt.Sprintf("n%d", off/part%uint64(len(r.nodes))+1)
		t.Parts = append(t.Parts, pool.Extent{Off: off, Size: min(part, t.Size-off), Component: name})
		byName[name] = append(byName[name], pool.Range{Off: off, Size: part})
		delete(have, off)
	}
	at := pool.EpochRequest{Region: t.Region, Epoch: t.Epoch, Size: t.Size, Owner: t.Owner, Grants: t.Grants, Leased: t.Leased}
	for off, e := range have {
		if err := r.ask(ctx, e.Component, pool.CallRelease, pool.ReleaseRequest{Region: t.Region, Epoch: t.Epoch, Parts: []pool.Range{{Off: off, Size: part}}}); err != nil {
			return err
		}
	}
	for name, parts := range byName {
		for range 2 { // an answer may have been lost
			if err := r.ask(ctx, name, pool.CallReserve, pool.ReserveRequest{EpochRequest: at, Name: t.Name, Parts: parts}); err != nil {
				return err
			}
		}
		if err := r.ask(ctx, name, pool.CallEpoch, at); err != nil {
			return err
		}
	}
	return nil
}

// ask asks a component as a manager does.
func (r *rig) ask(ctx context.Context, name, call string, req any) error {
	ep, err := r.sys.reach(ctx, name)
	if err == nil {
		_, err = control.Do[pool.Nothing](ctx, r.sys.rpc, ep, call, req)
	}
	return err
}
