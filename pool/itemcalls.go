package pool

import "fmt"

// The calls about items. The component that has a region's first extent has its directory: what items are there, and where.
const (
	CallItemCreate  = "wherry.pool.item.create"  // ItemCreateRequest → ItemTable
	CallItemLookup  = "wherry.pool.item.lookup"  // ItemRequest → ItemTable
	CallItemResize  = "wherry.pool.item.resize"  // ItemResizeRequest → ItemTable
	CallItemDestroy = "wherry.pool.item.destroy" // ItemRequest → Nothing
	CallItemGrant   = "wherry.pool.item.grant"   // ItemGrantRequest → Nothing
	CallItemList    = "wherry.pool.item.list"    // NameRequest → ItemList
)

const (
	// ItemAlign is what an item begins at a multiple of, in its region: a cache line, so that words lie in one piece and two items share no line.
	ItemAlign = 64
	// MaxItemParts bounds the components that an item is spread over.
	MaxItemParts = 256
)

// ItemRequest is about one item of a region, by name, or by number and generation.
type ItemRequest struct {
	NameRequest        // the region
	ItemName    string `json:"item_name,omitempty"`
	Number      uint32 `json:"number,omitempty"` // where there is no name
	Generation  uint64 `json:"generation,omitempty"`
}

func (r ItemRequest) String() string {
	if r.ItemName != "" {
		return fmt.Sprintf("%q of region %v", r.ItemName, r.NameRequest)
	}
	return fmt.Sprintf("number %d of region %v", r.Number, r.NameRequest)
}

// ItemCreateRequest allocates an item.
type ItemCreateRequest struct {
	NameRequest
	ItemName string     `json:"item_name,omitempty"`
	Size     uint64     `json:"size"` // 0: the directory has none of the item's bytes, its Parts have all
	Private  bool       `json:"private,omitempty"`
	Solid    bool       `json:"solid,omitempty"` // in one extent
	Spread   uint64     `json:"spread,omitempty"`
	Whole    uint64     `json:"whole,omitempty"` // the size of the item that Parts are of
	Parts    []ItemPart `json:"parts,omitempty"`
}

// ItemResizeRequest gives an item another size.
type ItemResizeRequest struct {
	ItemRequest
	Size uint64 `json:"size"`
}

// ItemGrantRequest sets what a principal may do with an item, beyond what it may do with the region.
type ItemGrantRequest struct {
	ItemRequest
	To     string `json:"to"`
	Rights string `json:"rights"`
}

// ItemPart is a part of an item that lies at a component: an item of that component's directory.
type ItemPart struct {
	Component  string `json:"component"`
	Number     uint32 `json:"number"`
	Generation uint64 `json:"generation"`
	Size       uint64 `json:"size"`
}

// ItemInfo describes an item.
type ItemInfo struct {
	Region     uint16            `json:"region"`
	Number     uint32            `json:"number"`     // in its region, at its component
	Generation uint64            `json:"generation"` // no other item of the component has it, before or after
	Name       string            `json:"name,omitempty"`
	Component  string            `json:"component"`
	Owner      string            `json:"owner"`
	Size       uint64            `json:"size"`
	Off        uint64            `json:"off"` // in the region; of a private item nothing
	Private    bool              `json:"private,omitempty"`
	Rights     string            `json:"rights"` // the asker's
	Grants     map[string]string `json:"grants,omitempty"`
	Spread     uint64            `json:"spread,omitempty"` // bytes of a block that one component has before the next; 0: each has one run
	Parts      []ItemPart        `json:"parts,omitempty"`  // of an item at several components; the first is the directory's own
}

// ItemList is a region's items at a component that the asker may see, by name and then by number.
type ItemList struct {
	Items []ItemInfo `json:"items"`
}

// ItemTable is an item, and where its bytes are at the component.
type ItemTable struct {
	ItemInfo
	Here   uint64      `json:"here"` // how many bytes those are
	Pieces []ItemPiece `json:"pieces"`
}

// ItemPiece is a run of an item's bytes in one segment.
type ItemPiece struct {
	Off  uint64 `json:"off"` // among the item's bytes at the component
	Size uint64 `json:"size"`
	At   uint64 `json:"at,omitempty"`  // in the region
	Own  bool   `json:"own,omitempty"` // it is a segment of its own, and no part of the region's extents
	Key  []byte `json:"key"`
}

// Validate reports a table whose pieces do not cover the item's bytes once.
func (t *ItemTable) Validate() error {
	next := uint64(0)
	for i, p := range t.Pieces {
		if p.Off != next || p.Size == 0 || p.Size > t.Here-next || p.Off%ItemAlign != 0 {
			return fmt.Errorf("piece %d of item %d has %d bytes at %d, and should begin at %d of %d", i, t.Number, p.Size, p.Off, next, t.Here)
		}
		next += p.Size
	}
	if next != t.Here || t.Here == 0 && len(t.Parts) < 2 || t.Here > MaxRegionBytes || t.Size > MaxRegionBytes || len(t.Parts) > MaxItemParts {
		return fmt.Errorf("pieces of %d bytes for the %d of item %d here, of %d", next, t.Here, t.Number, t.Size)
	}
	return nil
}
