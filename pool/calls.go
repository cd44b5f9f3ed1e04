package pool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
)

// The calls that a component serves.
const (
	CallCreate  = "wherry.pool.create"  // CreateRequest → Table
	CallLookup  = "wherry.pool.lookup"  // LookupRequest → Table
	CallResize  = "wherry.pool.resize"  // ResizeRequest → Table
	CallDestroy = "wherry.pool.destroy" // NameRequest → Nothing
	CallList    = "wherry.pool.list"    // Nothing → ListReply
	CallStat    = "wherry.pool.stat"    // NameRequest → Info
	CallGrant   = "wherry.pool.grant"   // GrantRequest → Nothing
	CallDiscard = "wherry.pool.discard" // DiscardRequest → Nothing
	CallCopy    = "wherry.pool.copy"    // CopyRequest → Nothing
	CallRead    = "wherry.pool.read"    // ReadRequest → ReadReply
	CallPull    = "wherry.pool.pull"    // PullRequest → Nothing
	CallGather  = "wherry.pool.gather"  // a Pick's bytes → the elements' bytes
	CallScatter = "wherry.pool.scatter" // a Pick's bytes and the elements' → nothing

	// For managers, which have the capability member.
	CallReserve = "wherry.pool.reserve" // ReserveRequest → Nothing
	CallRelease = "wherry.pool.release" // ReleaseRequest → Nothing
	CallEpoch   = "wherry.pool.epoch"   // EpochRequest → Nothing
	CallHeld    = "wherry.pool.held"    // Nothing → HeldReply
)

// Manager, in the place of a component's name, means any manager: the region's extents are where it chose.
const Manager = ""

// ManagerCall is the call by which a manager serves what a component serves by another. The bodies are the same, but a manager's tables name the component of each
// extent and have no keys: the components give those.
func ManagerCall(call string) string {
	return "wherry.manager" + strings.TrimPrefix(call, "wherry.pool")
}

// FirstManaged is the lowest number of a region that managers made. A component's own have lower ones.
const FirstManaged = 1 << (RegionBits - 1)

const (
	// MaxExtents bounds a region's extents: a table is one answer, and an extent takes a descriptor of the component.
	MaxExtents = 4096
	// MaxRanges bounds the ranges of one request.
	MaxRanges = 1024
	// MaxCopyBytes bounds what one request copies: the client's progress, and how long a component works for one request.
	MaxCopyBytes = 64 << 20
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

// NameRequest is about one region. With an epoch it must be the region's, or an earlier one of its life since when no bytes went.
type NameRequest struct {
	Name   string `json:"name,omitempty"`
	Region uint16 `json:"region,omitempty"` // where there is no name
	Epoch  uint64 `json:"epoch,omitempty"`
	Item   uint32 `json:"item,omitempty"` // where bytes are meant: those of this item of the region, and Epoch is its generation
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

// ResizeRequest gives a region another size.
type ResizeRequest struct {
	NameRequest
	Size uint64 `json:"size"`
}

// ReserveRequest takes memory for a region that a manager places: parts of it, each of which becomes an extent. Parts that the component has are left alone, so
// the request can be repeated. The owner is charged. Of a region that is there, epoch, size, owner and grants become those given.
type ReserveRequest struct {
	EpochRequest
	Name  string  `json:"name,omitempty"`
	Parts []Range `json:"parts"` // whole multiples of fabric.SegmentAlign
}

// ReleaseRequest frees parts of a region that a manager placed, or all that the component has of it. What is not there is no error.
type ReleaseRequest struct {
	Region uint16  `json:"region"`
	Epoch  uint64  `json:"epoch"`
	Parts  []Range `json:"parts,omitempty"` // none: all
}

// EpochRequest says what a region that a manager placed is from now on. An epoch that is lower than the region's is refused with ErrMoved: its sender was
// overtaken by another manager.
type EpochRequest struct {
	Region uint16            `json:"region"`
	Epoch  uint64            `json:"epoch"`
	Made   uint64            `json:"made,omitempty"` // the region's first epoch: what the component has of an earlier region of that number ends
	Size   uint64            `json:"size"`           // of the whole region
	Owner  string            `json:"owner"`
	Grants map[string]string `json:"grants,omitempty"`
	Leased bool              `json:"leased,omitempty"` // it goes with the first connection that opens it
}

// Held is what a component has of a region that a manager placed.
type Held struct {
	Region uint16  `json:"region"`
	Epoch  uint64  `json:"epoch"`
	Parts  []Range `json:"parts"`
}

// HeldReply lists what a component has of managers' regions, by number.
type HeldReply struct {
	Parts []Held `json:"parts"`
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
	// Turn orders the requests of a region that one program writes: where one with this number or a higher one was carried out, this one is
	// late, and refused. 0: none.
	Turn uint64 `json:"turn,omitempty"`
}

// CopyRequest copies bytes from one region to another of the same component, or within one: at most MaxCopyBytes.
type CopyRequest struct {
	From    NameRequest `json:"from"`
	FromOff uint64      `json:"from_off"`
	To      NameRequest `json:"to"`
	ToOff   uint64      `json:"to_off"`
	Size    uint64      `json:"size"`
}

// ReadRequest asks for keys by which bytes can be read.
type ReadRequest struct {
	From NameRequest `json:"from"`
	Off  uint64      `json:"off"`
	Size uint64      `json:"size"` // at most MaxCopyBytes
}

// ReadReply has the keys, in the order of the bytes.
type ReadReply struct {
	Pieces []Source `json:"pieces"`
}

// Source is bytes that a key covers.
type Source struct {
	Key  []byte `json:"key"` // good for reading
	Off  uint64 `json:"off"` // in what the key covers
	Size uint64 `json:"size"`
}

// PullRequest has a component fetch bytes from another one, by keys that the asker got there.
type PullRequest struct {
	To     NameRequest `json:"to"`
	ToOff  uint64      `json:"to_off"`
	From   string      `json:"from"` // the other component
	Pieces []Source    `json:"pieces"`
}

// Size is how many bytes are to come.
func (r *PullRequest) Size() (n uint64) {
	for _, p := range r.Pieces {
		if n += min(p.Size, MaxCopyBytes+1); n > MaxCopyBytes {
			return n
		}
	}
	return n
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
	Made      uint64            `json:"made,omitempty"` // the epoch that it was made under; the next ones are its resizes'
	Name      string            `json:"name,omitempty"`
	Component string            `json:"component,omitempty"` // "": its extents are where a manager placed them
	Owner     string            `json:"owner"`
	Size      uint64            `json:"size"`
	Extents   int               `json:"extents"`
	Leased    bool              `json:"leased,omitempty"`
	Rights    string            `json:"rights"` // the asker's
	Grants    map[string]string `json:"grants,omitempty"`
	// Placed and Lost are the components of a region that managers placed: those that have extents of it, and those that are gone with theirs.
	Placed []string `json:"placed,omitempty"`
	Lost   []string `json:"lost,omitempty"`
}

// ListReply is a component's regions that the asker may see, by name and then by number.
type ListReply struct {
	Regions []Info `json:"regions"`
}

// Table is a region and where its bytes are.
type Table struct {
	Info
	Parts   []Extent         `json:"parts"`
	Members []cluster.Member `json:"members,omitempty"` // the components, where a manager answers
	want    string           // rights that the components are asked for; "": all
}

// Extent is a run of a region's bytes in one segment.
type Extent struct {
	Off       uint64 `json:"off"`
	Size      uint64 `json:"size"`
	Component string `json:"component,omitempty"` // where it is not the region's
	Key       []byte `json:"key,omitempty"`       // an encoded fabric.Key; a manager's table has none
	Lost      bool   `json:"lost,omitempty"`      // its component is gone, and its bytes with it
}

// keys decodes a table's keys, and reports a table that covers its region not at all, or twice. A segment may have more bytes than its extent.
func (t *Table) keys() ([]fabric.Key, error) {
	if t.Size == 0 || t.Size > MaxRegionBytes || len(t.Parts) > MaxExtents || t.Region == 0 {
		return nil, fmt.Errorf("region %d of %d bytes in %d extents", t.Region, t.Size, len(t.Parts))
	}
	keys := make([]fabric.Key, len(t.Parts))
	next := uint64(0)
	for i, e := range t.Parts {
		if e.Off != next || e.Size == 0 || e.Size > t.Size-next {
			return nil, fmt.Errorf("extent %d has %d bytes at %d, and should begin at %d", i, e.Size, e.Off, next)
		}
		if e.Off%fabric.SegmentAlign != 0 { // words lie in one extent
			return nil, fmt.Errorf("extent %d begins at %d, no multiple of %d", i, e.Off, fabric.SegmentAlign)
		}
		if next += e.Size; e.Lost {
			continue
		}
		k, err := fabric.DecodeKey(e.Key)
		if err != nil {
			return nil, fmt.Errorf("extent %d: %w", i, err)
		}
		if k.Size < e.Size {
			return nil, fmt.Errorf("extent %d has %d bytes, and its key %d", i, e.Size, k.Size)
		}
		keys[i] = k
	}
	if next != t.Size {
		return nil, fmt.Errorf("extents of %d bytes for a region of %d", next, t.Size)
	}
	return keys, nil
}

// components are the names of the components that a table's extents lie at, in the extents' order.
func (t *Table) components() []string {
	var names []string
	for _, e := range t.Parts {
		if !slices.Contains(names, e.Component) {
			names = append(names, e.Component)
		}
	}
	return names
}

// lost are the components of a table that are gone with all that they had of the region.
func (t *Table) lost() []string {
	return slices.DeleteFunc(t.components(), func(name string) bool {
		return slices.ContainsFunc(t.Parts, func(e Extent) bool { return e.Component == name && !e.Lost })
	})
}
