package dataset

import (
	"encoding/binary"
	"math/bits"
)

// blockBytes are looked at at once for bytes that end fields: a bit of a word each.
const blockBytes = 64

// splitter finds the ends of fields in the lines that were read, without looking at a byte more than once. It knows nothing of quotes: a record that
// has one is csvReader's.
type splitter struct {
	commas uint64 // the separator, eight times
	from   int    // where in the lines' buffer the next record begins, if nothing else takes lines; -1: it has to begin anew
	block  int    // the place of the block that is looked at
	ends   uint64 // those bytes in it that were not used yet
	spans  []span // the fields of the last record
}

const (
	eachByte = 0x0101010101010101
	lowBits  = 0x7f * eachByte
	topBits  = 0x80 * eachByte
	// gather moves the lowest bits of eight bytes into the highest byte, in their order.
	gather = 0x0102040810204080
)

// find marks separators, quotes and ends of lines in a block. All three are ASCII, so a byte is one of them if its highest bit is not set and, of
// the difference of the other seven, adding 0x7f does not set it: nothing is carried from byte to byte (Warren, "Hacker's Delight", 6-1).
func (s *splitter) find(block *[blockBytes]byte) (ends uint64) {
	for i := 0; i < blockBytes; i += 8 {
		w := binary.LittleEndian.Uint64(block[i : i+8])
		low := w & lowBits
		none := (low ^ s.commas) + lowBits
		none &= (low ^ '"'*eachByte) + lowBits
		none &= (low ^ '\n'*eachByte) + lowBits
		found := ^(none | w) & topBits
		ends = ends>>8 | found>>7*gather>>56<<56
	}
	return ends
}

// span is a field's place in the lines' buffer.
type span struct{ from, to int32 }

// plain splits the next record into spans, if it has no quote and lies in the buffer whole, with a block behind it. Otherwise only empty lines before
// it are taken, and false is returned. (Slices of fields would be pointers, of which each costs a garbage collector at work some nanoseconds.)
func (c *csvReader) plain() bool {
	l, s := c.lines, &c.split
	if len(l.again) > 0 || l.late != nil {
		s.from = -1
		return false
	}
	if s.from != l.at {
		s.block, s.ends = l.at-blockBytes, 0
	}
	s.from = -1
	start, block, ends, buf := l.at, s.block, s.ends, l.buf[:l.end]
	spans := s.spans[:0]
	for {
		for ends == 0 {
			block += blockBytes
			if block+blockBytes > len(buf) {
				s.spans = spans
				return false
			}
			ends = s.find((*[blockBytes]byte)(buf[block:]))
		}
		at := block + bits.TrailingZeros64(ends)
		ends &= ends - 1
		if b := buf[at]; b == c.comma && len(spans) < maxFields-1 {
			spans = append(spans, span{int32(start), int32(at)})
			start = at + 1
			continue
		} else if b == c.comma || b == '"' {
			s.spans = spans // which has room for the next record
			return false
		}
		l.line++
		l.at = at + 1
		if line := withoutEnd(buf[start:l.at]); len(line) > 0 || len(spans) > 0 || c.lone {
			s.spans = append(spans, span{int32(start), int32(start + len(line))})
			c.first, c.quoted = l.line, c.quoted[:0]
			s.from, s.block, s.ends = l.at, block, ends
			return true
		}
		start = l.at // an empty line
	}
}

// at is a field of the record that plain has split.
func (c *csvReader) at(f span) []byte { return c.lines.buf[f.from:f.to] }
