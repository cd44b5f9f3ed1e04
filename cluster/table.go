package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/schema"
)

// ErrTable says that a table or its encoding is not valid; the message says why.
var ErrTable = errors.New("cluster: bad shard table")

const (
	// MaxWindows bounds the windows of a shard: a graph has GraphWindows, columns have PartWindows for each part.
	MaxWindows = 64
	// MaxWindowBytes bounds a window, as memfds are bounded.
	MaxWindowBytes = 1 << 46
)

// Kind is what a dataset's windows hold.
type Kind uint8

const (
	// Records: window FixedValues has the rows, one record of the schema, which has no text,
	// after the other. They are a column of fixed width, in an Arrow file (Table.File).
	Records Kind = 1 + iota
	// CSR: a graph in compressed sparse rows, both ways; a row is a vertex. Its windows
	// are the buffers of two columns of lists, in an Arrow file (Table.File).
	CSR
	// Raw: what the windows hold is between their owner and the functions that
	// use them; the sharding still says where a row is.
	Raw
	// Columns: the windows are parts, which are Arrow IPC files, each followed by its
	// directory; see package dataset/part.
	Columns
)

// Windows of a Records dataset.
const (
	FixedValues    = 0
	FixedDirectory = 1 // of the column that the rows are (package dataset/part)
	FixedFile      = 2 // the Arrow file that they lie in
	FixedWindows   = 3
)

// Windows of a CSR dataset. Offsets are of the element's own rows, one more
// than there are rows, and count targets (or name bytes) from the element's first.
const (
	FwdOffsetsWindow  = 0 // u64 each
	FwdTargetsWindow  = 1 // u32 vertices (global rows)
	RevOffsetsWindow  = 2 // u64 each
	RevTargetsWindow  = 3 // u32 vertices
	NameOffsetsWindow = 4 // u32 each; size 0 if vertices have no names
	NamesWindow       = 5 // text
	GraphWindows      = 6
	// Of a graph whose edges have weights there are two more.
	FwdWeightsWindow = 6 // f64, one for each target; size 0 if edges have no weights
	RevWeightsWindow = 7
	WeightedWindows  = 8
	// The Arrow file that the others lie in. Tables from before there was one have GraphWindows or WeightedWindows.
	GraphFile        = 8
	GraphFileWindows = 9
)

// Windows of each part of a Columns dataset: window PartWindows*i+PartFile is the file of part i.
const (
	PartFile      = 0
	PartDirectory = 1
	PartWindows   = 2
	// MaxParts bounds the parts of a shard, as MaxWindows bounds its windows.
	MaxParts = MaxWindows / PartWindows
)

var kinds = []string{Records: "records", CSR: "csr", Raw: "raw", Columns: "columns"}

func (k Kind) valid() bool { return k >= Records && k <= Columns }

func (k Kind) String() string {
	if k.valid() {
		return kinds[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// ParseKind reads a kind's name.
func ParseKind(name string) (Kind, error) {
	if i := slices.Index(kinds, name); i > 0 {
		return Kind(i), nil
	}
	return 0, fmt.Errorf("%w: there is no kind %q; %s", ErrTable, clip(name), schema.Suggest(name, kinds[1:]))
}

// MarshalText is the kind's name.
func (k Kind) MarshalText() ([]byte, error) {
	if !k.valid() {
		return nil, fmt.Errorf("%w: kind %d is unknown", ErrTable, uint8(k))
	}
	return []byte(k.String()), nil
}

// UnmarshalText reads a kind's name.
func (k *Kind) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKind(string(text))
	return err
}

// Window is one segment of a shard. Size is what holds data; 0 means that
// there is nothing and no segment.
type Window struct {
	Key      fabric.Key `json:"-"` // a secret; zero in tables that carry none
	Size     uint64     `json:"size"`
	Writable bool       `json:"writable,omitempty"`
}

// Shard is what one element holds of a dataset. Its rows are those from FirstRow
// on only if the sharding is Contiguous; else FirstRow is just the first of them.
type Shard struct {
	Element     string             `json:"element"`
	Incarnation fabric.Incarnation `json:"incarnation"`
	Addrs       []string           `json:"addrs"`
	FirstRow    uint64             `json:"first_row"`
	Rows        uint64             `json:"rows"`
	Windows     []Window           `json:"windows"`
	Parts       []Part             `json:"parts,omitempty"` // of Columns: what PartWindows windows each hold
}

// Part is some of a shard's rows: those that follow the part before.
type Part struct {
	Rows   uint64 `json:"rows"`
	Chunks uint32 `json:"chunks"`
}

// Table says where a dataset is. Shard i belongs to element index i of the sharding.
type Table struct {
	Name     string        `json:"name"`
	Version  uint64        `json:"version"`
	Kind     Kind          `json:"kind"`
	Schema   schema.Schema `json:"schema"`            // of Records; no fields otherwise
	Columns  column.Schema `json:"columns,omitempty"` // of Columns
	Sharding Sharding      `json:"sharding"`
	Rows     uint64        `json:"rows"`
	Shards   []Shard       `json:"shards"`
}

// TableID is the SHA-256 of a table's encoding: its identity.
type TableID [32]byte

// String is the start of the ID, enough for people.
func (id TableID) String() string { return hex.EncodeToString(id[:8]) }

// ID is the table's identity. It depends on the keys.
func (t *Table) ID() (TableID, error) {
	b, err := t.Encode()
	if err != nil {
		return TableID{}, err
	}
	return sha256.Sum256(b), nil
}

// FillRows sets every shard's FirstRow and Rows, and the table's, from the sharding.
func (t *Table) FillRows() {
	t.Rows = t.Sharding.Rows
	for i := range t.Shards {
		t.Shards[i].FirstRow, t.Shards[i].Rows = t.Sharding.ElementRows(uint32(i))
	}
}

// Owner says which shard holds a row, and the row's number there.
func (t *Table) Owner(row uint64) (element uint32, local uint64, ok bool) {
	return t.Sharding.Owner(row)
}

// Range is the range of rows that a shard holds. ok is false if there is no
// such shard; ranges is false if rows are not in ranges (see
// Sharding.Contiguous), and then there is none.
func (t *Table) Range(element uint32) (first, count uint64, ranges, ok bool) {
	if element >= uint32(len(t.Shards)) {
		return 0, 0, false, false
	}
	if !t.Sharding.Contiguous() {
		return 0, 0, false, true
	}
	s := &t.Shards[element]
	return s.FirstRow, s.Rows, true, true
}

// Row is the inverse of Owner: the row that has that number at a shard.
func (t *Table) Row(element uint32, local uint64) (row uint64, ok bool) {
	return t.Sharding.GlobalRow(element, local)
}

// Index is the index of the element with that name, -1 if it has no shard.
func (t *Table) Index(element string) int {
	return slices.IndexFunc(t.Shards, func(s Shard) bool { return s.Element == element })
}

// IndexOf is the index of the element with that incarnation, -1 if it has no shard.
func (t *Table) IndexOf(incarnation fabric.Incarnation) int {
	return slices.IndexFunc(t.Shards, func(s Shard) bool { return s.Incarnation == incarnation })
}

// Members lists the elements of the table as members, in its order.
func (t *Table) Members() []Member {
	out := make([]Member, len(t.Shards))
	for i, s := range t.Shards {
		out[i] = Member{Name: s.Element, Addrs: slices.Clone(s.Addrs)}
	}
	return out
}

// Clone is a deep copy.
func (t *Table) Clone() *Table {
	c := *t
	c.Schema.Fields = slices.Clone(t.Schema.Fields)
	c.Columns = slices.Clone(t.Columns)
	c.Sharding.Bounds = slices.Clone(t.Sharding.Bounds)
	c.Shards = slices.Clone(t.Shards)
	for i := range c.Shards {
		c.Shards[i].Addrs = slices.Clone(c.Shards[i].Addrs)
		c.Shards[i].Windows = slices.Clone(c.Shards[i].Windows)
		c.Shards[i].Parts = slices.Clone(c.Shards[i].Parts)
	}
	return &c
}

// WithoutKeys is a deep copy with zero keys: what may be shown and listed.
func (t *Table) WithoutKeys() *Table {
	c := t.Clone()
	for i := range c.Shards {
		for w := range c.Shards[i].Windows {
			c.Shards[i].Windows[w].Key = fabric.Key{}
		}
	}
	return c
}

// Validate checks everything a reader of the table relies on.
func (t *Table) Validate() error {
	if err := ValidateName(t.Name); err != nil {
		return fmt.Errorf("%w: %w", ErrTable, err)
	}
	if !t.Kind.valid() {
		return t.errorf("kind %d is unknown", uint8(t.Kind))
	}
	if t.Kind == Records {
		if err := t.Schema.ValidateDataset(); err != nil {
			return t.errorf("%w", err)
		}
	} else if len(t.Schema.Fields) != 0 {
		return t.errorf("kind %v has no schema", t.Kind)
	}
	if t.Kind == Columns {
		if err := t.Columns.Validate(); err != nil {
			return t.errorf("%w", err)
		}
	} else if len(t.Columns) != 0 {
		return t.errorf("kind %v has no columns", t.Kind)
	}
	if err := t.validateSharding(); err != nil {
		return err
	}
	var names, incarnations = map[string]int{}, map[fabric.Incarnation]int{}
	for i := range t.Shards {
		s := &t.Shards[i]
		if err := t.validateShard(uint32(i), s); err != nil {
			return t.errorf("shard %d (%s): %w", i, clip(s.Element), err)
		}
		if other, ok := names[s.Element]; ok {
			return t.errorf("shards %d and %d are both of element %s", other, i, s.Element)
		}
		if other, ok := incarnations[s.Incarnation]; ok {
			return t.errorf("shards %d and %d are both of incarnation %v", other, i, s.Incarnation)
		}
		names[s.Element], incarnations[s.Incarnation] = i, i
	}
	return nil
}

func (t *Table) errorf(format string, args ...any) error {
	return fmt.Errorf("%w %s: %w", ErrTable, t.Name, fmt.Errorf(format, args...))
}

func (t *Table) validateSharding() error {
	if err := t.Sharding.Validate(); err != nil {
		return t.errorf("%w", err)
	}
	if t.Rows != t.Sharding.Rows {
		return t.errorf("%d rows, its sharding has %d", t.Rows, t.Sharding.Rows)
	}
	if len(t.Shards) != int(t.Sharding.Elements) {
		return t.errorf("%d shards, its sharding has %d elements", len(t.Shards), t.Sharding.Elements)
	}
	if key := t.Sharding.Key; key != "" {
		switch {
		case t.Kind == Columns:
			if err := t.Columns.ValidateKey(key); err != nil {
				return t.errorf("%w", err)
			}
		case t.Kind != Records:
			return t.errorf("only records and columns are sharded by a key")
		case t.Schema.Index(key) < 0:
			return t.errorf("it is sharded by %q, which is no field; %s", key, schema.Suggest(key, t.Schema.Names()))
		}
	}
	if t.Kind == Columns && t.Sharding.Kind != Block && t.Sharding.Key == "" {
		return t.errorf("columns lie in ranges of rows (block) or by a key, not %v", t.Sharding.Kind)
	}
	if t.Kind == CSR && t.Rows > 1<<32 {
		return t.errorf("%d vertices; a graph numbers them with 32 bits", t.Rows)
	}
	return nil
}

func (t *Table) validateShard(i uint32, s *Shard) error {
	m := Member{Name: s.Element, Addrs: s.Addrs}
	if err := m.Validate(); err != nil {
		return err
	}
	if s.Incarnation == 0 {
		return errors.New("its incarnation is 0")
	}
	if first, rows := t.Sharding.ElementRows(i); s.FirstRow != first || s.Rows != rows {
		return fmt.Errorf("%d rows from %d, its sharding says %d from %d", s.Rows, s.FirstRow, rows, first)
	}
	if len(s.Windows) > MaxWindows {
		return fmt.Errorf("%d windows, at most %d are allowed", len(s.Windows), MaxWindows)
	}
	for w, win := range s.Windows {
		if win.Size > MaxWindowBytes {
			return fmt.Errorf("window %d has %d bytes, at most %d are allowed", w, win.Size, uint64(MaxWindowBytes))
		}
		if win.Key.IsZero() {
			continue
		}
		if win.Key.Owner != s.Incarnation {
			return fmt.Errorf("window %d: its key is of incarnation %v, the shard of %v", w, win.Key.Owner, s.Incarnation)
		}
		if win.Key.Size < win.Size {
			return fmt.Errorf("window %d: its key covers %d bytes of %d", w, win.Key.Size, win.Size)
		}
		if win.Key.Rights&^fabric.RightsAll != 0 {
			return fmt.Errorf("window %d: its key has unknown rights %#x", w, uint8(win.Key.Rights))
		}
	}
	return t.validateWindows(s)
}
