package part

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/column"
)

// MaxDictionary is the most distinct values that are stored as numbers: two bytes each.
const MaxDictionary = 64 << 10

// textOf is a text column's values, whichever of the two ways they are stored.
func textOf(a arrow.Array) func(row int) string {
	if d, ok := a.(*array.Dictionary); ok {
		words := d.Dictionary().(*array.String)
		return func(row int) string { return words.Value(d.GetValueIndex(row)) }
	}
	return a.(*array.String).Value
}

// encode stores the text of a column as numbers, if it takes less so; nil: it does not. All chunks share one dictionary.
func encode(chunks []arrow.Array) []arrow.Array {
	numbers := map[string]uint32{}
	var rows, text, words int
	for _, a := range chunks {
		at := textOf(a)
		for r := range a.Len() {
			if a.IsNull(r) {
				continue
			}
			s := at(r)
			rows++
			text += len(s)
			if _, known := numbers[s]; !known {
				if len(numbers) == MaxDictionary {
					return nil
				}
				numbers[s] = uint32(len(numbers))
				words += len(s)
			}
		}
	}
	width := 1
	if len(numbers) > 256 {
		width = 2
	}
	if len(numbers) == 0 || width*rows+words+4*len(numbers) >= text+4*rows {
		return nil
	}
	dictionary := dictionaryOf(numbers)
	defer dictionary.Release()
	out := make([]arrow.Array, len(chunks))
	for i, a := range chunks {
		out[i] = numbered(a, numbers, width, dictionary)
	}
	return out
}

// dictionaryOf is the words in the order of their numbers.
func dictionaryOf(numbers map[string]uint32) arrow.Array {
	words := make([]string, len(numbers))
	for s, n := range numbers {
		words[n] = s
	}
	b := NewBuilder(column.Type{ID: column.UTF8}, len(words))
	for _, s := range words {
		b.text = append(b.text, s...) // there is no more of it than in a chunk
		b.offsets = binary.LittleEndian.AppendUint32(b.offsets, uint32(len(b.text)))
		b.rows++
	}
	return b.Finish()
}

// numbered is a chunk's text as numbers of one or two bytes.
func numbered(a arrow.Array, numbers map[string]uint32, width int, dictionary arrow.Array) arrow.Array {
	id, index := column.U8, arrow.DataType(arrow.PrimitiveTypes.Uint8)
	if width == 2 {
		id, index = column.U16, arrow.PrimitiveTypes.Uint16
	}
	b := NewBuilder(column.Type{ID: id}, a.Len())
	at := textOf(a)
	for r := range a.Len() {
		if a.IsNull(r) {
			b.Null()
			continue
		}
		b.Bits(uint64(numbers[at(r)]))
	}
	codes := b.Finish()
	defer codes.Release()
	d := codes.Data()
	data := array.NewDataWithDictionary(&arrow.DictionaryType{IndexType: index, ValueType: arrow.BinaryTypes.String}, d.Len(),
		d.Buffers(), d.NullN(), 0, dictionary.Data().(*array.Data))
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
		b.offsets = binary.LittleEndian.AppendUint32(b.offsets, uint32(len(b.text)))
		b.mark(true)
	}
	return b.Finish()
}
