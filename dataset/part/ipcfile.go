package part

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// An Arrow file has its schema and the places of its batches in its footer. Most programs write a stream in front of it, but they need not:
// Polars writes a schema that is none of a stream's.

// blocks are the messages of an Arrow file, in the order of its footer, as those of a stream.
type blocks struct {
	at     ipc.ReadAtSeeker
	schema []byte // the first message, made of the footer's schema
	places []byte // blockBytes each: dictionaries, then batches
	length uint64 // of the head of the message that is read
	body   uint64
}

// NewFileStream reads an Arrow file, as NewStream does, by its footer.
func NewFileStream(at ipc.ReadAtSeeker, most uint64) (s *Stream, err error) {
	defer recovered(&err)
	if err := checkFooter(at); err != nil {
		return nil, fmt.Errorf("%w: %w: copy or write the file again", ErrPart, err)
	}
	b := &blocks{at: at}
	if err := b.readFooter(); err != nil {
		return nil, fmt.Errorf("%w: %w: copy or write the file again", ErrPart, err)
	}
	return newStream(&messages{blocks: b, most: most}, most)
}

// readFooter reads a footer that was checked.
func (b *blocks) readFooter() error {
	size, err := b.at.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	tail := make([]byte, fileTail)
	if _, err := b.at.ReadAt(tail, size-int64(fileTail)); err != nil && err != io.EOF {
		return err
	}
	foot := make([]byte, binary.LittleEndian.Uint32(tail))
	if _, err := b.at.ReadAt(foot, size-int64(fileTail+len(foot))); err != nil && err != io.EOF {
		return err
	}
	footer := flatbuffers.Table{Bytes: foot, Pos: flatbuffers.GetUOffsetT(foot)}
	for _, slot := range []int{2, 3} { // dictionaries, batches
		list, n := vector(footer, slot)
		b.places = append(b.places, foot[list:int(list)+n*blockBytes]...)
	}
	schema, ok := table(footer, 1)
	if !ok {
		return errors.New("it has no schema")
	}
	b.schema = schemaMessage(foot, uint32(schema.Pos), uint16(footer.GetInt16Slot(slot(0), 0)))
	return nil
}

// schemaMessage is a message with the schema that lies at a place of a footer. References are relative: the footer follows the message's own table.
func schemaMessage(foot []byte, schema uint32, version uint16) []byte {
	const root, fields, own = 16, 4, 32 // the message's table, the places of its fields, and what both take
	le := binary.LittleEndian
	size := (own + len(foot) + 7) &^ 7
	out := make([]byte, messagePrefix+size)
	le.PutUint32(out, ^uint32(0))
	le.PutUint32(out[4:], uint32(size))
	m := out[messagePrefix:]
	le.PutUint32(m, root)
	for i, v := range []uint16{12, 12, 8, 10, 4, 0} { // bytes of the places, of the table; version, kind, schema, body
		le.PutUint16(m[fields+2*i:], v)
	}
	le.PutUint32(m[root:], root-fields)
	le.PutUint32(m[root+4:], own+schema-(root+4))
	le.PutUint16(m[root+8:], version)
	m[root+10] = headSchema
	copy(m[own:], foot)
	return out
}

// next is the next message; io.EOF ends them.
func (b *blocks) next() (io.Reader, error) {
	if b.schema != nil {
		m := b.schema
		b.schema, b.length, b.body = nil, uint64(len(m)), 0
		return bytes.NewReader(m), nil
	}
	if len(b.places) == 0 {
		return nil, io.EOF
	}
	le := binary.LittleEndian
	at := le.Uint64(b.places)
	b.length, b.body = uint64(le.Uint32(b.places[8:])), le.Uint64(b.places[16:])
	b.places = b.places[blockBytes:]
	return io.NewSectionReader(b.at, int64(at), int64(b.length+b.body)), nil
}

// agree checks that a message is as long as the footer says.
func (b *blocks) agree(head, body uint64) error {
	if head != b.length || body != b.body {
		return fmt.Errorf("a batch has %d and %d bytes, and the footer says %d and %d: copy or write the file again", head, body, b.length, b.body)
	}
	return nil
}
