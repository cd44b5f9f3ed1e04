package pool

import (
	"fmt"
	"math/bits"

	"github.com/wherry-fabric/wherry/fabric"
)

// The calls that a component serves.
const (
	CallCreate  = "wherry.pool.create"  // CreateRequest → Table
	CallLookup  = "wherry.pool.lookup"  // LookupRequest → Table
	CallDestroy = "wherry.pool.destroy" // NameRequest → Nothing
	CallList    = "wherry.pool.list"    // Nothing → ListReply
	CallStat    = "wherry.pool.stat"    // NameRequest → Info
	CallGrant   = "wherry.pool.grant"   // GrantRequest → Nothing
	CallDiscard = "wherry.pool.discard" // DiscardRequest → Nothing
	CallCopy    = "wherry.pool.copy"    // CopyRequest → Nothing
	CallGather  = "wherry.pool.gather"  // a Pick's bytes → the elements' bytes
	CallScatter = "wherry.pool.scatter" // a Pick's bytes and the elements' → nothing
)

const (
	// MaxExtents bounds a region's extents: a table is one answer, and an extent takes a descriptor of the component.
	MaxExtents = 4096
	// MaxRanges bounds the ranges of one request.
	MaxRanges = 1024
	// MaxPicked bounds the elements of one request, and MaxPickedBytes their bytes: the component moves them on the goroutine that drives its fabric, as it
	// serves Gets. More are several requests.
	MaxPicked      = 4096
	MaxPickedBytes = 64 << 10
)

// Nothing is a body without members.
type Nothing struct{}

// CreateRequest makes a region.
type CreateRequest struct {
	Name   string `json:"name,omitempty"`
	Size   uint64 `json:"size"`
	Leased bool   `json:"leased,omitempty"`
}

// NameRequest is about one region. With an epoch it must be the region's.
type NameRequest struct {
	Name   string `json:"name,omitempty"`
	Region uint16 `json:"region,omitempty"` // where there is no name
	Epoch  uint64 `json:"epoch,omitempty"`
}

func (r NameRequest) String() string {
	if r.Name != "" {
		return fmt.Sprintf("%q", r.Name)
	}
	return fmt.Sprintf("number %d", r.Region)
}

// LookupRequest asks for a region's table, with keys that are good for Rights; all that the asker has, if that is empty.
type LookupRequest struct {
	NameRequest
	Rights string `json:"rights,omitempty"`
}

// GrantRequest sets what a principal may do with a region.
type GrantRequest struct {
	NameRequest
	To     string `json:"to"`
	Rights string `json:"rights"`
}

// DiscardRequest makes ranges of a region zeros.
type DiscardRequest struct {
	NameRequest
	Ranges []Range `json:"ranges"` // at most MaxRanges
}

// CopyRequest copies bytes from one region to another of the same component, or within one.
type CopyRequest struct {
	From    NameRequest `json:"from"`
	FromOff uint64      `json:"from_off"`
	To      NameRequest `json:"to"`
	ToOff   uint64      `json:"to_off"`
	Size    uint64      `json:"size"`
}

// Range is bytes of a region.
type Range struct {
	Off  uint64 `json:"off"`
	Size uint64 `json:"size"`
}

// Info describes a region.
type Info struct {
	Region    uint16            `json:"region"` // its number at the component
	Epoch     uint64            `json:"epoch"`
	Name      string            `json:"name,omitempty"`
	Component string            `json:"component"`
	Owner     string            `json:"owner"`
	Size      uint64            `json:"size"`
	Extents   int               `json:"extents"`
	Leased    bool              `json:"leased,omitempty"`
	Rights    string            `json:"rights"` // the asker's
	Grants    map[string]string `json:"grants,omitempty"`
}

// ListReply is a component's regions that the asker may see, by name and then by number.
type ListReply struct {
	Regions []Info `json:"regions"`
}

// Table is a region and where its bytes are.
type Table struct {
	Info
	Parts []Extent `json:"parts"`
}

// Extent is a run of a region's bytes in one segment.
type Extent struct {
	Off  uint64 `json:"off"`
	Size uint64 `json:"size"`
	Key  []byte `json:"key"` // an encoded fabric.Key
}

// shift says how many bits of an offset are the offset in its extent: all extents but the last have one size, a power of two, and the last has no more.
func (t *Table) shift() uint {
	if len(t.Parts) < 2 {
		return 64 - 1
	}
	return uint(bits.TrailingZeros64(t.Parts[0].Size))
}

// keys decodes a table's keys, and reports a table that covers its region not at all, or twice, or with extents of several sizes.
func (t *Table) keys() ([]fabric.Key, error) {
	if t.Size == 0 || t.Size > MaxRegionBytes || len(t.Parts) > MaxExtents || t.Region == 0 {
		return nil, fmt.Errorf("region %d of %d bytes in %d extents", t.Region, t.Size, len(t.Parts))
	}
	keys := make([]fabric.Key, 0, len(t.Parts))
	next := uint64(0)
	for i, e := range t.Parts {
		k, err := fabric.DecodeKey(e.Key)
		if err != nil {
			return nil, fmt.Errorf("extent %d: %w", i, err)
		}
		if e.Off != next || e.Size == 0 || e.Size > t.Size-next || k.Size != e.Size {
			return nil, fmt.Errorf("extent %d has %d bytes at %d (its key: %d), and should begin at %d", i, e.Size, e.Off, k.Size, next)
		}
		if last := i == len(t.Parts)-1; !last && e.Size != 1<<t.shift() || last && i > 0 && e.Size > t.Parts[0].Size {
			return nil, fmt.Errorf("extent %d of %d has %d bytes, the first %d", i, len(t.Parts), e.Size, t.Parts[0].Size)
		}
		keys, next = append(keys, k), next+e.Size
	}
	if next != t.Size {
		return nil, fmt.Errorf("extents of %d bytes for a region of %d", next, t.Size)
	}
	return keys, nil
}

// Validate reports a table that makes no sense.
func (t *Table) Validate() error {
	_, err := t.keys()
	return err
}
