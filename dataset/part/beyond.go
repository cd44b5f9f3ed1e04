package part

import (
	"encoding/binary"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/apache/arrow-go/v18/arrow"
)

// beyond is the first column of the batch read last that the batch has too few places for, or whose places lead out of it; "" if there is none, or the
// number of its places depends on its values, as that of views does. The Arrow library says of such a batch what index it tried.
func (s *Stream) beyond() string {
	if len(s.from.last) == 0 {
		return ""
	}
	message := flatbuffers.Table{Bytes: s.from.last, Pos: flatbuffers.GetUOffsetT(s.from.last)}
	rows, ok := table(message, 2)
	if !ok || message.GetByteSlot(slot(1), 0) != headRecord {
		return ""
	}
	const placeBytes = 16
	_, nodes := vector(rows, 1)
	at, places := vector(rows, 2)
	if int(at)+placeBytes*places > len(rows.Bytes) {
		return ""
	}
	list, body := rows.Bytes[at:], uint64(message.GetInt64Slot(slot(3), 0))
	for _, f := range s.r.Schema().Fields() {
		n, b, ok := extent(f.Type)
		if !ok {
			return ""
		}
		if n > nodes || b > places {
			return f.Name
		}
		for ; b > 0; b-- {
			from, size := binary.LittleEndian.Uint64(list), binary.LittleEndian.Uint64(list[8:])
			if from > body || size > body-from {
				return f.Name
			}
			list, places = list[placeBytes:], places-1
		}
		nodes -= n
	}
	return ""
}

// extent is how many nodes and buffers a column has in a batch, if its type says that.
func extent(t arrow.DataType) (nodes, buffers int, ok bool) {
	var within []arrow.Field
	switch t := t.(type) {
	case *arrow.NullType:
		return 1, 0, true
	case *arrow.DictionaryType:
		return 1, 2, true
	case *arrow.StringType, *arrow.BinaryType, *arrow.LargeStringType, *arrow.LargeBinaryType:
		return 1, 3, true
	case *arrow.StructType:
		nodes, buffers, within = 1, 1, t.Fields()
	case *arrow.FixedSizeListType:
		nodes, buffers, within = 1, 1, t.Fields()
	case *arrow.ListType, *arrow.LargeListType, *arrow.MapType:
		nodes, buffers, within = 1, 2, t.(arrow.NestedType).Fields()
	case *arrow.ListViewType, *arrow.LargeListViewType:
		nodes, buffers, within = 1, 3, t.(arrow.NestedType).Fields()
	case arrow.FixedWidthDataType:
		return 1, 2, true
	default:
		return 0, 0, false
	}
	for _, f := range within {
		n, b, ok := extent(f.Type)
		if !ok {
			return 0, 0, false
		}
		nodes, buffers = nodes+n, buffers+b
	}
	return nodes, buffers, true
}
