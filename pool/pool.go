package pool

import (
	"context"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/fabric"
)

// Asker makes calls to components: a client and a node each have one (control.NewAsker).
type Asker interface {
	// Ask makes a call to a component, or to any manager if its name is Manager, and decodes the answer into reply. It returns the connection that the answer came over, which is the Asker's.
	// It may be called from any goroutine.
	Ask(ctx context.Context, component, call string, req, reply any) (*fabric.Endpoint, error)
	// Call makes a call with bodies of bytes over a connection. req is the caller's again when it returns, and the answer is the caller's.
	// It may be called from any goroutine.
	Call(ctx context.Context, ep *fabric.Endpoint, call string, req []byte) ([]byte, error)
}

// Pool makes and finds regions: at a component that is named, or, by Manager in the place of a name, wherever the cluster's managers choose. Its methods may be
// called from any goroutine.
type Pool struct{ ask Asker }

// New makes a Pool.
func New(ask Asker) *Pool { return &Pool{refusing{ask}} }

// Spec describes a region to be made.
type Spec struct {
	// Name is unique at its component: letters, digits and ". _ - /". A leased region needs none.
	Name string
	Size uint64 // in bytes; it is rounded up to a multiple of fabric.SegmentAlign
	// Leased: the region is destroyed when the connection that it was made over ends. Otherwise it stays until it is destroyed, or its component ends.
	Leased bool
}

// CreateRegion makes a region at a component, all zeros, and opens it. It takes the capability write.
func (p *Pool) CreateRegion(ctx context.Context, component string, s Spec) (*Region, error) {
	if s.Size == 0 || s.Size > MaxRegionBytes {
		return nil, fmt.Errorf("pool: %w: a region of %d bytes: 1 to %d are possible", ErrSpec, s.Size, uint64(MaxRegionBytes))
	}
	return p.open(ctx, component, CallCreate, CreateRequest{Name: s.Name, Size: s.Size, Leased: s.Leased})
}

// LookupRegion opens a region with all rights that the caller has.
func (p *Pool) LookupRegion(ctx context.Context, component, name string) (*Region, error) {
	return p.open(ctx, component, CallLookup, LookupRequest{NameRequest: NameRequest{Name: name}})
}

// LookupRegionFor opens a region with some rights only, as in "r", and fails where the caller has not all of them.
func (p *Pool) LookupRegionFor(ctx context.Context, component, name, rights string) (*Region, error) {
	return p.open(ctx, component, CallLookup, LookupRequest{NameRequest: NameRequest{Name: name}, Rights: rights})
}

// OpenTable opens a region by a table that a manager answered.
func (p *Pool) OpenTable(ctx context.Context, t *Table) (*Region, error) {
	return p.opened(ctx, t, Manager, nil)
}

// openTries is how often a region is looked up again whose epoch rises meanwhile.
const openTries = 3

// open asks for a table and opens it.
func (p *Pool) open(ctx context.Context, component, call string, req any) (*Region, error) {
	t := new(Table)
	if look, yes := req.(LookupRequest); yes {
		t.want = look.Rights
	}
	ep, err := p.askHome(ctx, component, call, req, t)
	if err != nil {
		return nil, err
	}
	r, err := p.opened(ctx, t, component, ep)
	for range openTries { // its epoch rose between the manager's answer and a component's
		if component != Manager || call != CallLookup || !errors.Is(err, ErrMoved) {
			break
		}
		*t = Table{want: t.want}
		if _, err = p.askHome(ctx, component, call, req, t); err == nil {
			r, err = p.opened(ctx, t, component, ep)
		}
	}
	if err != nil && call == CallCreate { // no one else knows of it
		err = errors.Join(err, p.tell(ctx, component, CallDestroy, NameRequest{Region: t.Region, Epoch: t.Epoch}))
	}
	return r, err
}

// opened makes a Region of a table that came from its home, over ep.
func (p *Pool) opened(ctx context.Context, t *Table, home string, ep *fabric.Endpoint) (*Region, error) {
	v, err := p.view(ctx, t, home, ep)
	if err != nil {
		return nil, err
	}
	r := &Region{Memory: Memory{pool: p}, home: home}
	r.view.Store(v)
	return r, nil
}

// askHome asks a component, or a manager.
func (p *Pool) askHome(ctx context.Context, home, call string, req, reply any) (*fabric.Endpoint, error) {
	if home == Manager {
		call = ManagerCall(call)
	}
	ep, err := p.ask.Ask(ctx, home, call, req, reply)
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	if home == Manager {
		ep = nil
	}
	return ep, nil
}

// DestroyRegion frees a region. Clients that have it open get ErrMoved from then on. It takes ownership.
func (p *Pool) DestroyRegion(ctx context.Context, component, name string) error {
	return p.tell(ctx, component, CallDestroy, NameRequest{Name: name})
}

// Grant sets what a principal may do with a region, as in "r" or "all"; "none" takes it away. cluster.Everyone is all of them.
func (p *Pool) Grant(ctx context.Context, component, name, to, rights string) error {
	return p.tell(ctx, component, CallGrant, GrantRequest{NameRequest{Name: name}, to, rights})
}

// ListRegions lists a component's regions that the caller may see.
func (p *Pool) ListRegions(ctx context.Context, component string) ([]Info, error) {
	reply := new(ListReply)
	_, err := p.askHome(ctx, component, CallList, Nothing{}, reply)
	return reply.Regions, err
}

// StatRegion describes a region.
func (p *Pool) StatRegion(ctx context.Context, component, name string) (Info, error) {
	var info Info
	_, err := p.askHome(ctx, component, CallStat, NameRequest{Name: name}, &info)
	return info, err
}

func (p *Pool) tell(ctx context.Context, component, call string, req any) error {
	_, err := p.askHome(ctx, component, call, req, new(Nothing))
	return err
}
