package part

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
)

var le = binary.LittleEndian

// MaxDictionary is the most distinct values that are stored as numbers: two bytes each.
const MaxDictionary = 64 << 10

// bytesAt reads a text column's values, plain or from a dictionary. The bytes belong to the array.
func bytesAt(a arrow.Array) func(row int) []byte {
	if d, ok := a.(*array.Dictionary); ok {
		word := bytesAt(d.Dictionary())
		return func(row int) []byte { return word(d.GetValueIndex(row)) }
	}
	if a.Len() == 0 {
		return nil
	}
	s := a.(*array.String)
	ends, text := s.ValueOffsets(), s.ValueBytes()
	return func(row int) []byte { return text[ends[row]-ends[0] : ends[row+1]-ends[0]] }
}

// encode stores the text of a column as numbers into a dictionary that all chunks share; nil: that would take no less room.
func encode(chunks []arrow.Array) []arrow.Array {
	words := newLexicon()
	numbers := make([][]uint16, len(chunks))
	rows, text := 0, 0
	for i, a := range chunks {
		at, missing := bytesAt(a), a.NullN() > 0
		numbers[i] = make([]uint16, a.Len())
		for r := range numbers[i] {
			if missing && a.IsNull(r) {
				continue
			}
			word := at(r)
			n, ok := words.number(word)
			if !ok {
				return nil
			}
			numbers[i][r] = n
			rows++
			text += len(word)
		}
	}
	width := 1
	if words.words() > 256 {
		width = 2
	}
	if words.words() == 0 || width*rows+len(words.text)+4*words.words() >= text+4*rows {
		return nil
	}
	dictionary := words.array()
	defer dictionary.Release()
	out := make([]arrow.Array, len(chunks))
	for i, a := range chunks {
		out[i] = numbered(a, numbers[i], width, dictionary)
	}
	return out
}

// numbered is a chunk's text as numbers of one or two bytes.
func numbered(a arrow.Array, numbers []uint16, width int, dictionary arrow.Array) arrow.Array {
	index, codes := arrow.DataType(arrow.PrimitiveTypes.Uint8), make([]byte, width*len(numbers))
	if width == 1 {
		for i, n := range numbers {
			codes[i] = byte(n)
		}
	} else {
		index = arrow.PrimitiveTypes.Uint16
		for i, n := range numbers {
			le.PutUint16(codes[2*i:], n)
		}
	}
	var valid *memory.Buffer
	if a.NullN() > 0 {
		bits := make([]byte, (len(numbers)+7)/8)
		for i := range numbers {
			if a.IsValid(i) {
				bits[i/8] |= 1 << (i % 8)
			}
		}
		valid = memory.NewBufferBytes(bits)
	}
	data := array.NewDataWithDictionary(&arrow.DictionaryType{IndexType: index, ValueType: arrow.BinaryTypes.String}, len(numbers),
		[]*memory.Buffer{valid, memory.NewBufferBytes(codes)}, a.NullN(), 0, dictionary.Data().(*array.Data))
	defer data.Release()
	return array.MakeFromData(data)
}

// Plain is a column with its text plain, whichever way it is stored. The caller releases it.
func Plain(a arrow.Array) arrow.Array {
	d, ok := a.(*array.Dictionary)
	if !ok {
		a.Retain()
		return a
	}
	b := NewBuilder(column.Type{ID: column.UTF8}, a.Len())
	words := d.Dictionary().(*array.String)
	for r := range a.Len() {
		if a.IsNull(r) {
			b.Null()
			continue
		}
		b.text = append(b.text, words.Value(d.GetValueIndex(r))...)
		b.offsets = le.AppendUint32(b.offsets, uint32(len(b.text)))
		b.mark(true)
	}
	return b.Finish()
}
