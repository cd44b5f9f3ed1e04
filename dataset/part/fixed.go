package part

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
)

// FixedDirectoryBytes is how long the directory of a column of fixed width is (FixedDirectory).
func FixedDirectoryBytes(rows uint64) uint64 { return DirectoryBytes(1, fixedChunks(rows)) }

func fixedChunks(rows uint64) uint32 { return uint32((rows + ChunkRows - 1) / ChunkRows) }

// FixedDirectory is the directory of a column's values that lie together, none missing: functions see chunks of them. Places are offsets into
// the values. limits has the least and the greatest of each chunk found, for values that do not change.
func FixedDirectory(c column.Column, values []byte, limits bool) []byte {
	le := binary.LittleEndian
	size := uint64(c.Type.Size())
	rows := uint64(len(values)) / size
	b := make([]byte, 0, FixedDirectoryBytes(rows))
	b = le.AppendUint32(b, directoryMagic)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint32(b, fixedChunks(rows))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, rows)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, Stored(c.Type))
	b = append(b, make([]byte, columnBytes-4)...)
	for first := uint64(0); first < rows; first += ChunkRows {
		n := min(ChunkRows, rows-first)
		b = le.AppendUint64(b, first)
		b = le.AppendUint64(b, n)
		entry := [7]uint64{1: first * size}
		if limits {
			a := Fixed(c.Type, values[first*size:(first+n)*size])
			if least, most, ok := bounds(a); ok {
				entry[4], entry[5], entry[6] = flagBounds, least, most
			}
			a.Release()
		}
		for _, v := range entry {
			b = le.AppendUint64(b, v)
		}
	}
	return b
}

// Fixed is an array of values of fixed width, none missing; they are not copied.
func Fixed(t column.Type, values []byte) arrow.Array {
	data := array.NewData(ArrowType(t), len(values)/t.Size(), []*memory.Buffer{nil, memory.NewBufferBytes(values)}, nil, 0, 0)
	defer data.Release()
	return array.MakeFromData(data)
}
