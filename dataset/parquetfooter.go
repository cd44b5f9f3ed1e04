package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/format"
)

// The Parquet library takes a column's codec from the footer, and unpacks pages with it. Some of its codecs leave a buffer as another page left
// it (LZ4), so pages are unpacked here. plainFooter shows the library a footer that names no codec.

// Fields of Thrift's structures in a Parquet footer.
const (
	fieldRowGroups = 4 // of FileMetaData
	fieldColumns   = 1 // of RowGroup
	fieldMetaData  = 3 // of ColumnChunk
	fieldCodec     = 4 // of ColumnMetaData
)

// Types of Thrift's compact protocol.
const (
	thriftTrue = iota + 1
	thriftFalse
	thriftByte
	thriftI16
	thriftI32
	thriftI64
	thriftDouble
	thriftBinary
	thriftList
	thriftSet
	thriftMap
	thriftStruct
)

const (
	parquetMagic = "PAR1"
	parquetTail  = 4 + len(parquetMagic) // the footer's length, then the magic
	// maxThriftDepth bounds how deep structures are within each other: a footer's own are 8 deep.
	maxThriftDepth = 32
)

// plainFooter is a file whose footer names no codec.
type plainFooter struct {
	at     io.ReaderAt
	from   int64 // where the footer begins
	footer []byte
	codecs []format.CompressionCodec // of the columns of all row groups, one row group after the other
}

// newPlainFooter reads a file's footer.
func newPlainFooter(at io.ReaderAt, size int64) (*plainFooter, error) {
	var tail [parquetTail]byte
	if size < int64(parquetTail+len(parquetMagic)) {
		return nil, fmt.Errorf("it has %d bytes, the shortest has %d", size, parquetTail+len(parquetMagic))
	}
	if _, err := at.ReadAt(tail[:], size-int64(parquetTail)); err != nil && err != io.EOF {
		return nil, err
	}
	length := int64(binary.LittleEndian.Uint32(tail[:]))
	if string(tail[4:]) != parquetMagic {
		return nil, fmt.Errorf("it ends with %q, not with %q", tail[4:], parquetMagic)
	}
	if length > size-int64(parquetTail+len(parquetMagic)) {
		return nil, fmt.Errorf("its footer would have %d bytes, the file has %d", length, size)
	}
	f := &plainFooter{at: at, from: size - int64(parquetTail) - length, footer: make([]byte, length)}
	if _, err := at.ReadAt(f.footer, f.from); err != nil && err != io.EOF {
		return nil, err
	}
	w := thriftWalker{b: f.footer}
	w.fields(func(id int, typ byte) bool {
		return id == fieldRowGroups && typ == thriftList && w.list(func(typ byte) bool { return typ == thriftStruct && w.fields(f.rowGroup(&w)) })
	})
	return f, w.err
}

// rowGroup notes the codecs of a row group's columns.
func (f *plainFooter) rowGroup(w *thriftWalker) func(id int, typ byte) bool {
	return func(id int, typ byte) bool {
		return id == fieldColumns && typ == thriftList && w.list(func(typ byte) bool {
			codec := format.Uncompressed
			done := typ == thriftStruct && w.fields(func(id int, typ byte) bool {
				return id == fieldMetaData && typ == thriftStruct && w.fields(func(id int, typ byte) bool {
					if id != fieldCodec || typ != thriftI32 {
						return false
					}
					from := w.at
					n := w.uvarint()
					if codec = format.CompressionCodec(n >> 1); w.at == from+1 { // no codec there is takes more than a byte
						w.b[from] = 0
					}
					return true
				})
			})
			f.codecs = append(f.codecs, codec)
			return done
		})
	}
}

// ReadAt reads the file, with the other footer.
func (f *plainFooter) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.at.ReadAt(p, off)
	if from := max(off, f.from); from < off+int64(n) && from < f.from+int64(len(f.footer)) {
		copy(p[from-off:n], f.footer[from-f.from:])
	}
	return n, err
}

// codecOf is the codec of a column of a row group, each of which has so many.
func (f *plainFooter) codecOf(group, column, columns int) format.CompressionCodec {
	return f.codecs[group*columns+column]
}

// agree checks that the library found in the footer what was found here.
func (f *plainFooter) agree(groups []format.RowGroup, columns int) error {
	n := 0
	for _, g := range groups {
		if n += len(g.Columns); len(g.Columns) != columns {
			return fmt.Errorf("a row group has %d columns, the file %d", len(g.Columns), columns)
		}
		for _, c := range g.Columns {
			if c.MetaData.Codec != format.Uncompressed {
				return fmt.Errorf("a column has the codec %v, which is none of Parquet's", c.MetaData.Codec)
			}
		}
	}
	if n != len(f.codecs) {
		return fmt.Errorf("its footer lists %d columns of row groups, %d of them with a codec", n, len(f.codecs))
	}
	return nil
}

// thriftWalker goes over what is encoded in Thrift's compact protocol, and keeps the first error.
type thriftWalker struct {
	b     []byte
	at    int
	depth int
	err   error
}

var errThrift = errors.New("its footer is damaged")

func (w *thriftWalker) fail() {
	if w.err == nil {
		w.err = errThrift
	}
	w.at = len(w.b)
}

func (w *thriftWalker) byte() byte {
	if w.at >= len(w.b) {
		w.fail()
		return 0
	}
	w.at++
	return w.b[w.at-1]
}

func (w *thriftWalker) uvarint() uint64 {
	v, n := binary.Uvarint(w.b[w.at:])
	if n <= 0 {
		w.fail()
		return 0
	}
	w.at += n
	return v
}

func (w *thriftWalker) pass(n uint64) {
	if n > uint64(len(w.b)-w.at) {
		w.fail()
		return
	}
	w.at += int(n)
}

// fields goes over a structure; do reports that it went over a field's value. fields is always true.
func (w *thriftWalker) fields(do func(id int, typ byte) bool) bool {
	if w.depth++; w.depth > maxThriftDepth {
		w.fail()
	}
	defer func() { w.depth-- }()
	for id := 0; w.err == nil; {
		head := w.byte()
		typ := head & 15
		if head == 0 || w.err != nil {
			break
		}
		if delta := int(head >> 4); delta > 0 {
			id += delta
		} else {
			n := w.uvarint()
			id = int(int16(n>>1) ^ -int16(n&1))
		}
		if do == nil || !do(id, typ) {
			w.value(typ, false)
		}
	}
	return true
}

// list goes over a list; do reports that it went over a value. list is always true.
func (w *thriftWalker) list(do func(typ byte) bool) bool {
	if w.depth++; w.depth > maxThriftDepth {
		w.fail()
	}
	defer func() { w.depth-- }()
	head := w.byte()
	n, typ := uint64(head>>4), head&15
	if n == 15 {
		n = w.uvarint()
	}
	if n > uint64(len(w.b)-w.at) { // each takes a byte at least
		w.fail()
	}
	for ; n > 0 && w.err == nil; n-- {
		if do == nil || !do(typ) {
			w.value(typ, true)
		}
	}
	return true
}

// value passes a value. One of a field has the truth in its type, one of a list takes a byte.
func (w *thriftWalker) value(typ byte, listed bool) {
	switch typ {
	case thriftTrue, thriftFalse:
		if listed {
			w.byte()
		}
	case thriftByte:
		w.byte()
	case thriftI16, thriftI32, thriftI64:
		w.uvarint()
	case thriftDouble:
		w.pass(8)
	case thriftBinary:
		w.pass(w.uvarint())
	case thriftList, thriftSet:
		w.list(nil)
	case thriftMap:
		w.entries()
	case thriftStruct:
		w.fields(nil)
	default:
		w.fail()
	}
}

// entries passes a map.
func (w *thriftWalker) entries() {
	n := w.uvarint()
	if n == 0 || w.err != nil {
		return
	}
	types := w.byte()
	if n > uint64(len(w.b)-w.at) {
		w.fail()
	}
	if w.depth++; w.depth > maxThriftDepth {
		w.fail()
	}
	defer func() { w.depth-- }()
	for ; n > 0 && w.err == nil; n-- {
		w.value(types>>4, true)
		w.value(types&15, true)
	}
}
