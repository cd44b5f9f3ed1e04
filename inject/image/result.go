package image

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/schema"
)

// ErrResult says that a part of a result is not what the manifest promises.
var ErrResult = errors.New("image: bad result")

// Call is what a call needs of an image, worked out once. It is the image's own: nothing in it may be changed.
type Call struct {
	Manifest
	Params *schema.Checked // nil: raw bytes
	Result *schema.Checked // nil: raw bytes
	// ConstantsBytes is how long the constants of a function are that is derived from this one; 0: none can be.
	ConstantsBytes int
}

// Call is what calls need of the image; unlike Manifest it copies nothing.
func (m *Image) Call() *Call { return m.call }

// Maps reports whether the function finds a dataset's window i in its memory: one that the manifest lists, or any if it lists none
// (or is of ABI 1, which had all).
func (c *Call) Maps(i int) bool {
	return c.ABI < 2 || len(c.Windows) == 0 || i < len(c.Windows) || c.ReadsColumns()
}

// newCall works it out, of a manifest that is valid.
func newCall(m *Manifest) (*Call, error) {
	c := &Call{Manifest: *m}
	if m.Constants != nil {
		c.ConstantsBytes = int(m.Constants.RecordBytes())
	}
	var err error
	if m.Params != nil {
		if c.Params, err = m.Params.CheckedParams(); err != nil {
			return nil, err
		}
	}
	if m.Result != nil {
		c.Result, err = m.Result.CheckedResult()
	}
	return c, err
}

// DecodeResult reads one part of a result as rows, whatever its form. An empty
// part has no rows. Raw results have none to read; that is an error.
func (c *Call) DecodeResult(part []byte) (schema.Rows, error) {
	if c.Result == nil {
		return schema.Rows{}, fmt.Errorf("%w: the result of %s is raw bytes, not rows", ErrResult, c.Name)
	}
	if len(part) == 0 {
		part = make([]byte, schema.PartHeadBytes)
		return c.Result.DecodePart(part)
	}
	layout := c.Result.Layout()
	size := int(layout.Size)
	switch c.ResultForm {
	case ResultRows:
		return c.Result.DecodePart(part)
	case ResultRecord:
		part, err := rowFromRecord(c.Result.Schema(), layout, part)
		if err != nil {
			return schema.Rows{}, err
		}
		return c.Result.DecodePart(part)
	case ResultList:
		if len(part)%size != 0 {
			return schema.Rows{}, fmt.Errorf("%w: a list of %d-byte records has %d bytes", ErrResult, size, len(part))
		}
		return c.Result.DecodePart(rowsFromList(part, size))
	}
	return schema.Rows{}, fmt.Errorf("%w: unknown form %q", ErrResult, clip(string(c.ResultForm)))
}

// stride is the distance of records of size bytes in a row-encoded part.
func stride(size int) int { return (size + schema.PartAlign - 1) / schema.PartAlign * schema.PartAlign }

func rowsFromList(list []byte, size int) []byte {
	n, step := len(list)/size, stride(size)
	part := make([]byte, schema.PartHeadBytes+n*step)
	binary.LittleEndian.PutUint32(part, uint32(n))
	for i := range n {
		copy(part[schema.PartHeadBytes+i*step:], list[i*size:(i+1)*size])
	}
	return part
}

// rowFromRecord makes a part of one row; its text moves, so the offsets do too.
func rowFromRecord(s *schema.Schema, layout *schema.Layout, record []byte) ([]byte, error) {
	size := int(layout.Size)
	if len(record) < size {
		return nil, fmt.Errorf("%w: a record of %d bytes has only %d", ErrResult, size, len(record))
	}
	start := schema.PartHeadBytes + stride(size)
	part := make([]byte, start, start+len(record)-size)
	part[0] = 1
	copy(part[schema.PartHeadBytes:], record[:size])
	part = append(part, record[size:]...)
	for i, f := range s.Fields {
		if f.Type != schema.Str {
			continue
		}
		cell := part[schema.PartHeadBytes+int(layout.Offsets[i]):]
		at, n := binary.LittleEndian.Uint32(cell), binary.LittleEndian.Uint32(cell[4:])
		if n == 0 {
			continue
		}
		if uint64(at) < uint64(size) || uint64(at)+uint64(n) > uint64(len(record)) {
			return nil, fmt.Errorf("%w: %s is text at %d to %d of a record of %d bytes", ErrResult, f.Name, at, uint64(at)+uint64(n), len(record))
		}
		binary.LittleEndian.PutUint32(cell, at-uint32(size)+uint32(start))
	}
	return part, nil
}
