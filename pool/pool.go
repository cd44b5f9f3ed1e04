package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/fabric"
)

// Asker makes calls to components: a client and a node each have one (control.NewAsker).
type Asker interface {
	// Ask makes a call to a component and decodes the answer into reply. It returns the connection that the answer came over, which is the Asker's.
	// It may be called from any goroutine.
	Ask(ctx context.Context, component, call string, req, reply any) (*fabric.Endpoint, error)
	// Call makes a call with bodies of bytes over a connection. req is the caller's again when it returns, and the answer is the caller's.
	// It may be called from any goroutine.
	Call(ctx context.Context, ep *fabric.Endpoint, call string, req []byte) ([]byte, error)
}

// Pool makes and finds regions. Its methods may be called from any goroutine.
type Pool struct{ ask Asker }

// New makes a Pool.
func New(ask Asker) *Pool { return &Pool{ask} }

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

// open asks for a table and imports its keys.
func (p *Pool) open(ctx context.Context, component, call string, req any) (*Region, error) {
	t := new(Table)
	ep, err := p.ask.Ask(ctx, component, call, req, t)
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	r := &Region{pool: p, component: component, info: t.Info, ep: ep, shift: t.shift()}
	extents, err := r.imported(ctx, t)
	if err != nil {
		if call == CallCreate { // nobody knows of it
			err = errors.Join(err, r.Destroy(ctx))
		}
		return nil, fmt.Errorf("pool: region %s at %s: %w", r.label(), component, err)
	}
	r.mapped = !slices.ContainsFunc(extents, func(e extent) bool { return !e.remote.Mapped() })
	r.extents.Store(&extents)
	return r, nil
}

// importBatch is how many keys are imported in one round trip: well below what may be under way on a connection.
const importBatch = 64

func (r *Region) imported(ctx context.Context, t *Table) ([]extent, error) {
	keys, err := t.keys()
	if err != nil {
		return nil, fmt.Errorf("its table makes no sense: %w", err)
	}
	extents := make([]extent, 0, len(keys))
	for from := 0; from < len(keys); from += importBatch {
		batch := keys[from:min(from+importBatch, len(keys))]
		started := make([]fabric.Importing, len(batch))
		for i, k := range batch {
			started[i] = r.ep.StartImport(k)
		}
		for i, s := range started { // each must end
			remote, e := s.Wait(ctx)
			if errors.Is(e, fabric.ErrBackpressure) {
				remote, e = r.ep.Import(ctx, batch[i]) // waits for its turn
			}
			if e != nil && err == nil {
				err = verbError(e)
			}
			part := t.Parts[from+i]
			extents = append(extents, extent{part.Off, part.Size, remote})
		}
		if err != nil {
			return nil, err
		}
	}
	return extents, nil
}

// DestroyRegion frees a region. Who has it open gets ErrMoved from then on. It takes ownership.
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
	if _, err := p.ask.Ask(ctx, component, CallList, Nothing{}, reply); err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	return reply.Regions, nil
}

// StatRegion describes a region.
func (p *Pool) StatRegion(ctx context.Context, component, name string) (Info, error) {
	var info Info
	_, err := p.ask.Ask(ctx, component, CallStat, NameRequest{Name: name}, &info)
	if err != nil {
		err = fmt.Errorf("pool: %w", err)
	}
	return info, err
}

func (p *Pool) tell(ctx context.Context, component, call string, req any) error {
	if _, err := p.ask.Ask(ctx, component, call, req, new(Nothing)); err != nil {
		return fmt.Errorf("pool: %w", err)
	}
	return nil
}
