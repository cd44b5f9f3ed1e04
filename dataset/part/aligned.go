package part

import (
	"encoding/binary"
	"fmt"
	"math"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/wherry-fabric/wherry/column"
)

// An aligned file is an Arrow IPC file of one batch whose buffers begin at multiples of Align, so that each can be a window of its own (column.Places): what
// functions and other elements use is the buffer, and what other programs read is the file. Its node writes it around the buffers, which are
// filled in place.

const (
	// Align is what buffers begin at a multiple of, and how long the file's head is.
	Align = column.FileAlign
	// tailBytes are the end of the stream, the footer, its length and the magic. A footer of three columns takes some 600 bytes, and of
	// one with the longest name 500.
	tailBytes = column.FileTail
)

// Aligned is what an aligned file has beside its buffers.
type Aligned struct {
	fields  []fieldSpec
	rows    uint64
	lengths []uint64 // of the columns, and those within them, as the format lists them
	buffers []span   // likewise; none: of missing values
	file    uint64
}

// fieldSpec is a column, or one within it.
type fieldSpec struct {
	name   string
	typ    byte // of Schema.fbs's union Type
	build  func(b *flatbuffers.Builder) flatbuffers.UOffsetT
	within []fieldSpec
}

// The numbers of types in Schema.fbs.
const (
	arrowInt       = 2
	arrowFloat     = 3
	arrowBinary    = 4
	arrowUTF8      = 5
	arrowStruct    = 13
	arrowBytes     = 15
	arrowLargeList = 21
	metadataV5     = 4
	wholeDouble    = 2 // FloatingPoint's precision; one less for f32
)

// FixedFile is the file of one column of fixed width, none missing.
func FixedFile(c column.Column, rows uint64) (*Aligned, error) {
	f := fieldSpec{name: c.Name}
	width := uint64(c.Type.Size())
	switch id := c.Type.ID; {
	case id >= column.I8 && id <= column.U64:
		f.typ, f.build = arrowInt, number(int32(8*width), id <= column.I64)
	case id == column.F32 || id == column.F64:
		f.typ, f.build = arrowFloat, floatType(int16(width/4))
	case id == column.Bytes:
		f.typ, f.build = arrowBytes, oneInt32(int32(width))
	default:
		return nil, fmt.Errorf("%w: a column of type %v cannot be a window", ErrPart, c.Type)
	}
	at, file := column.Places([]uint64{rows * width})
	return &Aligned{fields: []fieldSpec{f}, rows: rows, lengths: []uint64{rows}, buffers: []span{{}, {at[0], rows * width}}, file: file}, nil
}

// The buffers of a graph's file, in the order of cluster's windows.
const (
	outOffsets = iota
	outTargets
	inOffsets
	inTargets
	nameOffsets
	nameBytes
	outWeights
	inWeights
	graphBuffers
)

// Columns of a graph's file. Those of edges are lists of vertices, or of structs of a vertex and a weight.
const (
	GraphName   = "name"
	GraphOut    = "out"
	GraphIn     = "in"
	GraphEdge   = "edge"
	GraphTo     = "to"
	GraphWeight = "weight"
)

// Graph says what a graph's buffers hold.
type Graph struct {
	Rows     uint64
	Sizes    []uint64 // of the buffers, as cluster's windows of a graph
	Weighted bool
	Text     bool // names are UTF-8
}

// File is the graph's file: its names, if vertices have some, and a list of edges each way.
func (g Graph) File() (*Aligned, error) {
	if len(g.Sizes) != graphBuffers {
		return nil, fmt.Errorf("%w: a graph has %d buffers, not %d", ErrPart, graphBuffers, len(g.Sizes))
	}
	at, file := column.Places(g.Sizes)
	buffer := func(i int) span { return span{at[i], g.Sizes[i]} }
	a := &Aligned{rows: g.Rows, file: file}
	if g.Sizes[nameOffsets] > 0 {
		f := fieldSpec{name: GraphName, typ: arrowBinary, build: noFields}
		if g.Text {
			f.typ = arrowUTF8
		}
		a.fields, a.lengths = append(a.fields, f), append(a.lengths, g.Rows)
		a.buffers = append(a.buffers, span{}, buffer(nameOffsets), buffer(nameBytes))
	}
	vertex := fieldSpec{name: GraphTo, typ: arrowInt, build: number(32, false)}
	for _, way := range []struct {
		name                      string
		offsets, targets, weights int
	}{{GraphOut, outOffsets, outTargets, outWeights}, {GraphIn, inOffsets, inTargets, inWeights}} {
		edges := g.Sizes[way.targets] / 4
		list := fieldSpec{name: way.name, typ: arrowLargeList, build: noFields, within: []fieldSpec{vertex}}
		a.lengths, a.buffers = append(a.lengths, g.Rows, edges), append(a.buffers, span{}, buffer(way.offsets), span{})
		if g.Weighted {
			weight := fieldSpec{name: GraphWeight, typ: arrowFloat, build: floatType(wholeDouble)}
			list.within = []fieldSpec{{name: GraphEdge, typ: arrowStruct, build: noFields, within: []fieldSpec{vertex, weight}}}
			a.lengths, a.buffers = append(a.lengths, edges, edges), append(a.buffers, span{})
		}
		a.buffers = append(a.buffers, buffer(way.targets))
		if g.Weighted {
			a.buffers = append(a.buffers, span{}, buffer(way.weights))
		}
		a.fields = append(a.fields, list)
	}
	return a, nil
}

// Write writes head and end of the file into its memory.
func (a *Aligned) Write(file []byte) error {
	if uint64(len(file)) != a.file {
		return fmt.Errorf("%w: the file takes %d bytes, there are %d", ErrPart, a.file, len(file))
	}
	head := file[:Align]
	clear(head)
	at := copy(head, fileMagic+"\x00\x00")
	at += message(head[at:], 0, headSchema, 0, func(b *flatbuffers.Builder) flatbuffers.UOffsetT { return a.schema(b) })
	body := a.file - tailBytes - Align
	batchAt := at
	if message(head[at:], Align-at, headRecord, body, a.batch) != Align-at {
		return fmt.Errorf("%w: the schema takes %d bytes, too many for the head of a file", ErrPart, at)
	}
	tail := file[a.file-tailBytes:]
	clear(tail)
	binary.LittleEndian.PutUint32(tail, math.MaxUint32) // the end of the stream: a message of no bytes
	foot := a.footer(uint64(batchAt), uint64(Align-batchAt), body)
	room := tail[messagePrefix : tailBytes-fileTail]
	if len(foot) > len(room) {
		return fmt.Errorf("%w: the footer takes %d bytes, too many for the end of a file", ErrPart, len(foot))
	}
	copy(room, foot)
	binary.LittleEndian.PutUint32(tail[tailBytes-fileTail:], uint32(len(room)))
	copy(tail[tailBytes-len(fileMagic):], fileMagic)
	return nil
}

// message writes a message's head and returns its length: whole, if that is not 0 and is enough.
func message(to []byte, whole int, kind byte, body uint64, content func(*flatbuffers.Builder) flatbuffers.UOffsetT) int {
	b := flatbuffers.NewBuilder(1024)
	c := content(b)
	b.StartObject(5)
	b.PrependInt64Slot(3, int64(body), 0)
	b.PrependUOffsetTSlot(2, c, 0)
	b.PrependInt16Slot(0, metadataV5, 0)
	b.PrependByteSlot(1, kind, 0)
	b.Finish(b.EndObject())
	meta := b.FinishedBytes()
	n := messagePrefix + (len(meta)+7)&^7
	if n > len(to) || whole > 0 && n > whole {
		return 0
	}
	n = max(n, whole)
	binary.LittleEndian.PutUint32(to, math.MaxUint32)
	binary.LittleEndian.PutUint32(to[4:], uint32(n-messagePrefix))
	copy(to[messagePrefix:], meta)
	return n
}

func (a *Aligned) schema(b *flatbuffers.Builder) flatbuffers.UOffsetT {
	fields := fieldList(b, a.fields)
	b.StartObject(4)
	b.PrependUOffsetTSlot(1, fields, 0)
	return b.EndObject() // little-endian is the default
}

func fieldList(b *flatbuffers.Builder, fields []fieldSpec) flatbuffers.UOffsetT {
	at := make([]flatbuffers.UOffsetT, len(fields))
	for i, f := range fields {
		at[i] = f.field(b)
	}
	b.StartVector(4, len(at), 4)
	for i := len(at) - 1; i >= 0; i-- {
		b.PrependUOffsetT(at[i])
	}
	return b.EndVector(len(at))
}

func (f *fieldSpec) field(b *flatbuffers.Builder) flatbuffers.UOffsetT {
	within := fieldList(b, f.within)
	name, typ := b.CreateString(f.name), f.build(b)
	b.StartObject(7)
	b.PrependUOffsetTSlot(5, within, 0)
	b.PrependUOffsetTSlot(3, typ, 0)
	b.PrependUOffsetTSlot(0, name, 0)
	b.PrependByteSlot(2, f.typ, 0)
	return b.EndObject() // it is not nullable by default
}

func noFields(b *flatbuffers.Builder) flatbuffers.UOffsetT {
	b.StartObject(0)
	return b.EndObject()
}

func number(bits int32, signed bool) func(*flatbuffers.Builder) flatbuffers.UOffsetT {
	return func(b *flatbuffers.Builder) flatbuffers.UOffsetT {
		b.StartObject(2)
		b.PrependInt32Slot(0, bits, 0)
		b.PrependBoolSlot(1, signed, false)
		return b.EndObject()
	}
}

func floatType(precision int16) func(*flatbuffers.Builder) flatbuffers.UOffsetT {
	return func(b *flatbuffers.Builder) flatbuffers.UOffsetT {
		b.StartObject(1)
		b.PrependInt16Slot(0, precision, 0)
		return b.EndObject()
	}
}

func oneInt32(v int32) func(*flatbuffers.Builder) flatbuffers.UOffsetT {
	return func(b *flatbuffers.Builder) flatbuffers.UOffsetT {
		b.StartObject(1)
		b.PrependInt32Slot(0, v, 0)
		return b.EndObject()
	}
}

// batch is the record batch: lengths of columns, none of whose values is missing, and places of buffers.
func (a *Aligned) batch(b *flatbuffers.Builder) flatbuffers.UOffsetT {
	b.StartVector(16, len(a.lengths), 8)
	for i := len(a.lengths) - 1; i >= 0; i-- {
		b.Prep(8, 16)
		b.PrependInt64(0)
		b.PrependInt64(int64(a.lengths[i]))
	}
	nodes := b.EndVector(len(a.lengths))
	b.StartVector(16, len(a.buffers), 8)
	for i := len(a.buffers) - 1; i >= 0; i-- {
		s := a.buffers[i]
		b.Prep(8, 16)
		b.PrependInt64(int64(s.size))
		b.PrependInt64(int64(max(s.at, Align) - Align))
	}
	buffers := b.EndVector(len(a.buffers))
	b.StartObject(5)
	b.PrependInt64Slot(0, int64(a.rows), 0)
	b.PrependUOffsetTSlot(1, nodes, 0)
	b.PrependUOffsetTSlot(2, buffers, 0)
	return b.EndObject()
}

func (a *Aligned) footer(batchAt, head, body uint64) []byte {
	b := flatbuffers.NewBuilder(1024)
	schema := a.schema(b)
	b.StartVector(blockBytes, 0, 8)
	none := b.EndVector(0)
	b.StartVector(blockBytes, 1, 8)
	b.Prep(8, blockBytes)
	b.PrependInt64(int64(body))
	b.Pad(4)
	b.PrependInt32(int32(head))
	b.PrependInt64(int64(batchAt))
	blocks := b.EndVector(1)
	b.StartObject(5)
	b.PrependUOffsetTSlot(1, schema, 0)
	b.PrependUOffsetTSlot(2, none, 0)
	b.PrependUOffsetTSlot(3, blocks, 0)
	b.PrependInt16Slot(0, metadataV5, 0)
	b.Finish(b.EndObject())
	return b.FinishedBytes()
}
