package cluster

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"unicode/utf8"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/schema"
)

// ErrSharding says that a sharding is not valid; the message says why.
var ErrSharding = errors.New("cluster: bad sharding")

const (
	// MaxElements bounds the elements that one dataset is spread over.
	MaxElements = 1024
	// MaxRows bounds a dataset's rows: products of it with small sizes fit 64 bits.
	MaxRows = 1 << 48
)

// ShardKind is a rule by which rows go to elements.
type ShardKind uint8

const (
	// Block gives each element a range of rows, of about the same length
	// unless Sharding.Bounds says otherwise.
	Block ShardKind = 1 + iota
	// Cyclic deals rows out in turn: row r goes to element r mod E.
	Cyclic
	// Hash without a key deals each run of E rows out in turn too, but starts
	// at a hashed element, so that no pattern in the data meets always the same one.
	// With a key, rows go where the hash of their key field or column says (KeyOwner),
	// and are numbered element by element.
	Hash
)

var shardKinds = []string{Block: "block", Cyclic: "cyclic", Hash: "hash"}

func (k ShardKind) String() string {
	if k >= Block && k <= Hash {
		return shardKinds[k]
	}
	return fmt.Sprintf("ShardKind(%d)", uint8(k))
}

// ParseShardKind reads a kind's name.
func ParseShardKind(name string) (ShardKind, error) {
	if i := slices.Index(shardKinds, name); i > 0 {
		return ShardKind(i), nil
	}
	return 0, fmt.Errorf("%w: there is no kind %q; %s", ErrSharding, clip(name), schema.Suggest(name, shardKinds[1:]))
}

// MarshalText is the kind's name.
func (k ShardKind) MarshalText() ([]byte, error) {
	if k < Block || k > Hash {
		return nil, fmt.Errorf("%w: kind %d is unknown", ErrSharding, uint8(k))
	}
	return []byte(k.String()), nil
}

// UnmarshalText reads a kind's name.
func (k *ShardKind) UnmarshalText(text []byte) (err error) {
	*k, err = ParseShardKind(string(text))
	return err
}

// Sharding says which element holds which row. Row numbers go from 0 to Rows-1;
// an element numbers its own rows from 0 too ("local"). Owner and GlobalRow are
// inverse to each other; neither allocates.
type Sharding struct {
	Kind     ShardKind `json:"kind"`
	Elements uint32    `json:"elements"`
	Rows     uint64    `json:"rows"`
	// Bounds, if there are any, are the ranges of Block, or of Hash with a
	// Key: element e holds rows Bounds[e] to Bounds[e+1]-1.
	Bounds []uint64 `json:"bounds,omitempty"`
	// Key is the field or column whose hash decides, in Hash; "" hashes row numbers.
	Key string `json:"key,omitempty"`
}

// BlockOf is the block sharding in which element e has counts[e] rows: what
// comes of files that lie on several elements already. It does not check the
// result; Validate does.
func BlockOf(counts []uint64) Sharding {
	s := Sharding{Kind: Block, Elements: uint32(len(counts)), Bounds: make([]uint64, 1, len(counts)+1)}
	for _, n := range counts {
		s.Rows += n
		s.Bounds = append(s.Bounds, s.Rows)
	}
	return s
}

// KeyedOf is the sharding by the hash of a key in which element e got counts[e] rows.
func KeyedOf(key string, counts []uint64) Sharding {
	s := BlockOf(counts)
	s.Kind, s.Key = Hash, key
	return s
}

// Validate checks s. Every other method relies on it.
func (s *Sharding) Validate() error {
	if s.Kind < Block || s.Kind > Hash {
		return fmt.Errorf("%w: kind %d is unknown", ErrSharding, uint8(s.Kind))
	}
	if s.Elements < 1 || s.Elements > MaxElements {
		return fmt.Errorf("%w: %d elements, it takes 1 to %d", ErrSharding, s.Elements, MaxElements)
	}
	if s.Rows > MaxRows {
		return fmt.Errorf("%w: %d rows, at most %d are allowed", ErrSharding, s.Rows, uint64(MaxRows))
	}
	keyed := s.Kind == Hash && s.Key != ""
	if s.Key != "" {
		if s.Kind != Hash {
			return fmt.Errorf("%w: kind %v has no key (it is %q)", ErrSharding, s.Kind, clip(s.Key))
		}
		if len(s.Key) > column.MaxNameBytes || !utf8.ValidString(s.Key) {
			return fmt.Errorf("%w: key %.80q: a name is 1 to %d bytes of UTF-8", ErrSharding, s.Key, column.MaxNameBytes)
		}
	}
	if s.Bounds == nil {
		if keyed {
			return fmt.Errorf("%w: hash by key %q needs bounds", ErrSharding, s.Key)
		}
		return nil
	}
	if s.Kind != Block && !keyed {
		return fmt.Errorf("%w: kind %v without a key has no bounds", ErrSharding, s.Kind)
	}
	if len(s.Bounds) != int(s.Elements)+1 {
		return fmt.Errorf("%w: %d bounds for %d elements, want one more than elements", ErrSharding, len(s.Bounds), s.Elements)
	}
	if s.Bounds[0] != 0 || s.Bounds[s.Elements] != s.Rows {
		return fmt.Errorf("%w: bounds go from %d to %d, want 0 to %d", ErrSharding, s.Bounds[0], s.Bounds[s.Elements], s.Rows)
	}
	if !slices.IsSorted(s.Bounds) {
		return fmt.Errorf("%w: bounds are not in ascending order", ErrSharding)
	}
	return nil
}

// Contiguous reports whether every element holds a range of rows, and the
// ranges follow one another in the elements' order. One element alone always does.
func (s *Sharding) Contiguous() bool { return s.Kind == Block || s.Key != "" || s.Elements == 1 }

// Held says in words which rows an element holds.
func (s *Sharding) Held(element uint32) string {
	first, count := s.ElementRows(element)
	switch {
	case count == 0:
		return "no rows"
	case s.Contiguous() && count == 1:
		return fmt.Sprintf("row %d", first)
	case s.Contiguous():
		return fmt.Sprintf("rows %d to %d", first, first+count-1)
	case s.Kind == Cyclic:
		return fmt.Sprintf("every %s row from %d", ordinal(uint64(s.Elements)), first)
	default:
		return fmt.Sprintf("one of every %d rows, by hash", s.Elements)
	}
}

// ordinal is n as a place: 2nd, 3rd, 11th.
func ordinal(n uint64) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}

// start is the first row of element e, for contiguous shardings; e may be Elements.
func (s *Sharding) start(e uint32) uint64 {
	if s.Bounds != nil {
		return s.Bounds[e]
	}
	each, more := s.Rows/uint64(s.Elements), s.Rows%uint64(s.Elements)
	return uint64(e)*each + min(uint64(e), more)
}

// Owner says which element holds a row, and its number there. ok is false if
// there is no such row.
func (s *Sharding) Owner(row uint64) (element uint32, local uint64, ok bool) {
	if row >= s.Rows {
		return 0, 0, false
	}
	elements := uint64(s.Elements)
	switch {
	case s.Bounds != nil:
		// The last element that starts at row or before; empty ones before it do too.
		i, _ := slices.BinarySearch(s.Bounds, row+1)
		element = uint32(i - 1)
		return element, row - s.Bounds[element], true
	case s.Kind == Block:
		each, more := s.Rows/elements, s.Rows%elements
		if long := more * (each + 1); row < long {
			return uint32(row / (each + 1)), row % (each + 1), true
		} else {
			return uint32(more + (row-long)/each), (row - long) % each, true
		}
	case s.Kind == Cyclic:
		return uint32(row % elements), row / elements, true
	default:
		run, place := row/elements, row%elements
		return uint32((place + runStart(run, elements)) % elements), run, true
	}
}

// GlobalRow is the inverse of Owner. ok is false if the element has no such row.
func (s *Sharding) GlobalRow(element uint32, local uint64) (row uint64, ok bool) {
	if element >= s.Elements || local >= MaxRows {
		return 0, false
	}
	elements := uint64(s.Elements)
	switch {
	case s.Contiguous():
		row = s.start(element) + local
		return row, row < s.start(element+1)
	case s.Kind == Cyclic:
		row = local*elements + uint64(element)
	default:
		row = local*elements + (uint64(element)+elements-runStart(local, elements))%elements
	}
	return row, row < s.Rows
}

// ElementRows is how many rows an element holds, and the row that has local
// number 0 there: the first of a range if the sharding is Contiguous. An
// element without rows has where its range would begin, or else Rows; an
// element that does not exist has zeros.
func (s *Sharding) ElementRows(element uint32) (first, count uint64) {
	if element >= s.Elements {
		return 0, 0
	}
	if s.Contiguous() {
		first = s.start(element)
		return first, s.start(element+1) - first
	}
	elements := uint64(s.Elements)
	count = s.Rows / elements
	if _, ok := s.GlobalRow(element, count); ok {
		count++
	}
	if count == 0 {
		return s.Rows, 0
	}
	first, _ = s.GlobalRow(element, 0)
	return first, count
}

// runStart is the element that the first row of a run of E rows goes to, in
// Hash without a key: the hashed run number, scaled to the elements.
func runStart(run, elements uint64) uint64 {
	hi, _ := bits.Mul64(mix(run+1), elements)
	return hi
}

// KeyOwner is the element that rows with this key go to, in Hash with a Key. key is
// the field's bytes in the record, or a Str field's text; of a column what column.KeyBytes says.
func (s *Sharding) KeyOwner(key []byte) uint32 {
	hi, _ := bits.Mul64(HashKey(key), uint64(s.Elements))
	return uint32(hi)
}

// HashKey is the hash of a key: 64-bit FNV-1a, its bits then mixed.
func HashKey(key []byte) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, c := range key {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return mix(h)
}

// mix spreads a change of any bit over all bits (the 64-bit finalizer of MurmurHash3).
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// clipBytes is how much of a bad value a message shows.
const clipBytes = 64

func clip(s string) string {
	if len(s) <= clipBytes {
		return s
	}
	return s[:clipBytes] + "…"
}
