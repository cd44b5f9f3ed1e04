package column

import (
	"encoding/binary"
	"fmt"

	"github.com/wherry-fabric/wherry/schema"
)

// KeyBytes appends what the hash of a key is taken of, for a key of type t of at most 64 bits: 8 bytes, whatever the type's width, so that a
// literal of a query has the bytes of the values that are equal to it. Of a decimal these are its low 64 bits and then its high ones; of text
// and bytes the values themselves; of a missing value nothing.
func KeyBytes(to []byte, bits uint64) []byte { return binary.LittleEndian.AppendUint64(to, bits) }

// ValidateKey reports why a dataset of these columns cannot be sharded by one of them.
func (s Schema) ValidateKey(name string) error {
	i := s.Index(name)
	if i < 0 {
		return fmt.Errorf("%w: the key %.80q is no column; %s", ErrSchema, name, schema.Suggest(name, s.Names()))
	}
	switch t := s[i].Type; t.ID {
	case F32, F64:
		return fmt.Errorf("%w: the key %q is %v: a float is no key, because -0 equals 0 and NaN equals nothing; use a column of integers, text or times", ErrSchema, name, t)
	case List, Struct:
		return fmt.Errorf("%w: the key %q is %v: a key is one value; use a column of integers, text or times", ErrSchema, name, t)
	}
	return nil
}
