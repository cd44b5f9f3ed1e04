package part

import (
	"encoding/binary"
	"fmt"
	"math"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
)

// The frame of an Arrow IPC file: where its batches lie, and their buffers. The Arrow library reads it too, but copies what it reads
// and does not say where it was. Numbers are of fields' slots in Arrow's File.fbs, Message.fbs and Schema.fbs; a slot that is
// not there has its default. A reference that leads out of the file panics; Open makes an error of that.

// fileTail is the length of the footer, then the magic.
const (
	fileMagic     = "ARROW1"
	fileTail      = 4 + len(fileMagic)
	headDict      = 2 // DictionaryBatch
	headRecord    = 3 // RecordBatch
	blockBytes    = 24
	messagePrefix = 8 // continuation and length
)

// span is a buffer's place in the file.
type span struct{ at, size uint64 }

// node is how many values a column has, or a list or a struct within it, and how many are missing.
type node struct{ length, nulls int64 }

// batch is a record batch or a dictionary's words.
type batch struct {
	dictionary int64 // its id; -1: rows
	rows       int
	nodes      []node // by column, those within it behind it
	spans      []span
}

// frame is the frame of a file.
type frame struct {
	dictionaryIDs []int64 // by column; -1: none
	dictionaries  map[int64]batch
	chunks        []batch
}

func slot(i int) flatbuffers.VOffsetT { return flatbuffers.VOffsetT(4 + 2*i) }

// table follows a reference to a table; false if it is not there.
func table(t flatbuffers.Table, i int) (out flatbuffers.Table, ok bool) {
	o := flatbuffers.UOffsetT(t.Offset(slot(i)))
	if o == 0 {
		return out, false
	}
	return flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(o + t.Pos)}, true
}

// vector is where a list's elements begin, and how many there are.
func vector(t flatbuffers.Table, i int) (at flatbuffers.UOffsetT, n int) {
	o := flatbuffers.UOffsetT(t.Offset(slot(i)))
	if o == 0 {
		return 0, 0
	}
	return t.Vector(o), t.VectorLen(o)
}

func readFrame(b []byte) (*frame, error) {
	le := binary.LittleEndian
	if len(b) < len(fileMagic)+fileTail+2 || string(b[:len(fileMagic)]) != fileMagic || string(b[len(b)-len(fileMagic):]) != fileMagic {
		return nil, fmt.Errorf("it is no Arrow file: it does not begin and end with %q", fileMagic)
	}
	size := uint64(le.Uint32(b[len(b)-fileTail:]))
	if size > uint64(len(b)-fileTail) {
		return nil, fmt.Errorf("its footer has %d bytes, more than the file", size)
	}
	end := uint64(len(b)-fileTail) - size
	foot := b[end : len(b)-fileTail]
	footer := flatbuffers.Table{Bytes: foot, Pos: flatbuffers.GetUOffsetT(foot)}
	f := &frame{dictionaries: map[int64]batch{}}
	if err := f.readIDs(footer); err != nil {
		return nil, err
	}
	for _, list := range []struct {
		slot int
		head byte
	}{{2, headDict}, {3, headRecord}} {
		at, n := vector(footer, list.slot)
		if n > len(foot)/blockBytes {
			return nil, fmt.Errorf("its footer lists %d batches, more than it has room for", n)
		}
		last := uint64(0) // where the batch before ends: each takes memory here, so none is listed twice
		for i := range n {
			block := foot[int(at)+i*blockBytes:]
			begin := le.Uint64(block)
			if begin < last {
				return nil, fmt.Errorf("batch %d begins at %d, the one before it ends at %d: they overlap", i, begin, last)
			}
			bt, err := readBatch(b[:end], begin, uint64(le.Uint32(block[8:])), le.Uint64(block[16:]), list.head)
			if err != nil {
				return nil, fmt.Errorf("batch %d: %w", i, err)
			}
			last = begin + uint64(le.Uint32(block[8:])) + le.Uint64(block[16:])
			if list.head == headRecord {
				f.chunks = append(f.chunks, bt)
				continue
			}
			if _, twice := f.dictionaries[bt.dictionary]; twice {
				return nil, fmt.Errorf("dictionary %d is there twice: a part has one for all its chunks", bt.dictionary)
			}
			f.dictionaries[bt.dictionary] = bt
		}
	}
	return f, nil
}

// readIDs finds which column has which dictionary.
func (f *frame) readIDs(footer flatbuffers.Table) error {
	if err := checkLists(footer, 4); err != nil { // metadata
		return err
	}
	schema, ok := table(footer, 1)
	if !ok {
		return fmt.Errorf("it has no schema")
	}
	if err := checkFields(schema); err != nil {
		return err
	}
	at, n := vector(schema, 1)
	for i := range n {
		field := flatbuffers.Table{Bytes: schema.Bytes, Pos: schema.Indirect(at + flatbuffers.UOffsetT(4*i))}
		id := int64(-1)
		if d, ok := table(field, 4); ok {
			id = d.GetInt64Slot(slot(0), 0)
		}
		f.dictionaryIDs = append(f.dictionaryIDs, id)
	}
	return nil
}

// maxFields bounds the fields of a schema, those within others counted.
const maxFields = 4 * column.MaxColumns

// checkFields bounds the fields of a schema and how deep they are within each other. References may lead back, and the Arrow library follows them
// until the stack is used up, which nothing recovers from.
func checkFields(schema flatbuffers.Table) error {
	if err := checkLists(schema, 2, 3); err != nil { // metadata, features
		return err
	}
	left := maxFields
	return checkFieldsOf(schema, 1, 0, &left)
}

// checkFieldsOf checks the fields that a table lists.
func checkFieldsOf(t flatbuffers.Table, list, depth int, left *int) error {
	at, n := vector(t, list)
	if n < 0 || n > len(t.Bytes)/4 {
		return fmt.Errorf("its schema lists %d columns, more than it has room for", n)
	}
	if *left -= n; *left < 0 {
		return fmt.Errorf("its schema has more than %d fields", maxFields)
	}
	if n > 0 && depth > maxDepth {
		return fmt.Errorf("its lists and structs go more than %d deep within each other", column.MaxNesting)
	}
	for i := range n {
		field := flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(at + flatbuffers.UOffsetT(4*i))}
		if err := checkLists(field, 6); err != nil { // metadata
			return err
		}
		if err := checkFieldsOf(field, 5, depth+1, left); err != nil {
			return err
		}
	}
	return nil
}

// checkLists refuses lists that a table's bytes have no room for: the Arrow library makes room for what they say.
func checkLists(t flatbuffers.Table, slots ...int) error {
	for _, i := range slots {
		if _, n := vector(t, i); n < 0 || n > len(t.Bytes)/4 {
			return fmt.Errorf("it lists %d things where it has room for %d", n, len(t.Bytes)/4)
		}
	}
	return nil
}

// readBatch reads the message of a block: its head, whose length the footer has, and the places in the body behind it.
func readBatch(b []byte, at, head, body uint64, kind byte) (out batch, err error) {
	if at > uint64(len(b)) || head < messagePrefix || head > uint64(len(b))-at || body > uint64(len(b))-at-head || (at|head)%8 != 0 {
		return out, fmt.Errorf("it lies at %d, %d and %d bytes long, in %d", at, head, body, len(b))
	}
	meta := b[at+messagePrefix : at+head]
	message := flatbuffers.Table{Bytes: meta, Pos: flatbuffers.GetUOffsetT(meta)}
	if got := message.GetByteSlot(slot(1), 0); got != kind {
		return out, fmt.Errorf("its message is of kind %d, want %d", got, kind)
	}
	rows, ok := table(message, 2)
	out.dictionary = -1
	if ok && kind == headDict {
		if rows.GetBoolSlot(slot(2), false) {
			return out, fmt.Errorf("its dictionary grows: a part has one for all its chunks")
		}
		out.dictionary = rows.GetInt64Slot(slot(0), 0)
		rows, ok = table(rows, 1)
	}
	if _, packed := table(rows, 3); !ok || packed {
		return out, fmt.Errorf("it is empty or compressed: a part is neither")
	}
	n := rows.GetInt64Slot(slot(0), 0)
	if n < 0 || n > ChunkRows && kind == headRecord || n > MaxDictionary && kind == headDict {
		return out, fmt.Errorf("it has %d rows, a chunk has at most %d and a dictionary %d", n, ChunkRows, MaxDictionary)
	}
	out.rows = int(n)
	return out, out.readPlaces(rows, at+head, body)
}

// readPlaces reads the lists of a batch.
func (bt *batch) readPlaces(rows flatbuffers.Table, at, body uint64) error {
	le := binary.LittleEndian
	list, n := vector(rows, 1)
	if n > len(rows.Bytes)/16 {
		return fmt.Errorf("it lists %d columns, more than it has room for", n)
	}
	for i := range n {
		at := rows.Bytes[int(list)+16*i:]
		bt.nodes = append(bt.nodes, node{int64(le.Uint64(at)), int64(le.Uint64(at[8:]))})
	}
	list, n = vector(rows, 2)
	if n > len(rows.Bytes)/16 {
		return fmt.Errorf("it lists %d buffers, more than it has room for", n)
	}
	for i := range n {
		place := rows.Bytes[int(list)+16*i:]
		from, size := le.Uint64(place), le.Uint64(place[8:])
		if from > body || size > body-from || from%8 != 0 {
			return fmt.Errorf("buffer %d is %d bytes at %d of a body of %d", i, size, from, body)
		}
		s := span{at + from, size}
		if size == 0 {
			s.at = 0
		}
		bt.spans = append(bt.spans, s)
	}
	return nil
}

// take removes the first n buffers.
func (bt *batch) take(n int) ([]span, error) {
	if n > len(bt.spans) {
		return nil, fmt.Errorf("it has too few buffers")
	}
	out := bt.spans[:n]
	bt.spans = bt.spans[n:]
	return out, nil
}

// takeNode removes the first node.
func (bt *batch) takeNode() (node, error) {
	if len(bt.nodes) == 0 {
		return node{}, fmt.Errorf("it has too few columns")
	}
	out := bt.nodes[0]
	bt.nodes = bt.nodes[1:]
	if out.length < 0 || out.length > math.MaxInt32 || out.nulls < 0 || out.nulls > out.length {
		return out, fmt.Errorf("%d of %d values are missing", out.nulls, out.length)
	}
	return out, nil
}

// buffers are views of the file.
func buffers(b []byte, spans []span) []*memory.Buffer {
	out := make([]*memory.Buffer, len(spans))
	for i, s := range spans {
		if s.size > 0 {
			out[i] = memory.NewBufferBytes(b[s.at : s.at+s.size : s.at+s.size])
		}
	}
	return out
}
