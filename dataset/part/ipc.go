package part

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
)

const (
	// maxMessageHead bounds the head of an Arrow message: MaxColumns with the longest names take less.
	maxMessageHead = 4 << 20
	headSchema     = 1
)

// Stream reads the batches of an Arrow stream, or of an Arrow file from its start. It trusts nothing in them. Its types are
// those of columns, and such as can become them: large text, views and dictionaries are plain text here, and all kinds of lists are lists.
type Stream struct {
	Columns column.Schema
	r       *ipc.Reader
	from    *messages
	memory  *allowance
}

// NeedsFooter reports an Arrow file, from its start, that is no stream behind its magic: NewStream refuses it.
func NeedsFooter(in *bufio.Reader) bool {
	begin, _ := in.Peek(len(fileMagic) + 2 + 4)
	return len(begin) == len(fileMagic)+2+4 && string(begin[:len(fileMagic)]) == fileMagic && binary.LittleEndian.Uint32(begin[len(fileMagic)+2:]) != math.MaxUint32
}

// NewStream reads the schema. A batch may take so many bytes, unpacked.
func NewStream(from io.Reader, most uint64) (s *Stream, err error) {
	in := bufio.NewReader(from)
	if magic, err := in.Peek(len(fileMagic) + 2); err == nil && string(magic[:len(fileMagic)]) == fileMagic {
		_, _ = in.Discard(len(magic)) // a file is a stream behind its magic, with a footer
	}
	return newStream(&messages{r: in, most: most}, most)
}

func newStream(from *messages, most uint64) (s *Stream, err error) {
	s = &Stream{from: from, memory: &allowance{most: most}}
	defer s.memory.recovered(&err)
	if s.r, err = ipc.NewReader(from, ipc.WithAllocator(s.memory), ipc.WithEnsureNativeEndian(true)); err != nil {
		return nil, fmt.Errorf("%w: it is no Arrow stream: %w", ErrPart, err)
	}
	for _, f := range s.r.Schema().Fields() {
		t, err := fieldType(plainField(f))
		if err != nil {
			s.r.Release()
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		s.Columns = append(s.Columns, column.Column{Name: f.Name, Type: t, Nullable: f.Nullable})
	}
	return s, s.Columns.Validate()
}

// plainField is a field within a list or a struct, or a column, once it is plain.
func plainField(f arrow.Field) arrow.Field {
	return arrow.Field{Name: f.Name, Type: plainType(f.Type), Nullable: true, Metadata: f.Metadata}
}

// plainType is the type that values of t have once they are columns.
func plainType(t arrow.DataType) arrow.DataType {
	switch t := t.(type) {
	case *arrow.LargeStringType, *arrow.StringViewType, *arrow.NullType: // which has no values
		return arrow.BinaryTypes.String
	case *arrow.LargeBinaryType, *arrow.BinaryViewType:
		return arrow.BinaryTypes.Binary
	case *arrow.Date64Type:
		return arrow.FixedWidthTypes.Date32
	case *arrow.DictionaryType:
		return plainType(t.ValueType)
	case *arrow.StructType:
		fields := make([]arrow.Field, t.NumFields())
		for i, f := range t.Fields() {
			fields[i] = plainField(f)
		}
		return arrow.StructOf(fields...)
	case *arrow.MapType, *arrow.ListType, *arrow.LargeListType, *arrow.FixedSizeListType, *arrow.ListViewType, *arrow.LargeListViewType:
		return arrow.ListOfField(plainField(t.(arrow.ListLikeType).ElemField()))
	}
	return t
}

// Next is the next batch; io.EOF ends them. The caller releases its arrays, of which Rows makes chunks.
func (s *Stream) Next() (columns []arrow.Array, err error) {
	defer s.memory.recovered(&err)
	rec, err := s.read()
	if err != nil {
		return nil, err
	}
	for i, a := range rec.Columns() {
		s.memory.takeNulls(a.Data())
		if err := validFull(a); err != nil {
			if strings.Contains(err.Error(), "not valid utf8") {
				return nil, fmt.Errorf("%w: column %q: %s is not UTF-8: write the column as binary, or mend the text where it comes from", ErrPart, s.Columns[i].Name, notUTF8(a))
			}
			return nil, fmt.Errorf("%w: column %q: %w", ErrPart, s.Columns[i].Name, err)
		}
		if !s.Columns[i].Nullable && a.NullN() > 0 {
			return nil, fmt.Errorf("%w: column %q: %d values are missing in a column that misses none", ErrPart, s.Columns[i].Name, a.NullN())
		}
	}
	for _, a := range rec.Columns() {
		a.Retain()
		columns = append(columns, a)
	}
	return columns, nil
}

// notUTF8 says which text of an array is not. The library has checked the offsets in front of it.
func notUTF8(a arrow.Array) string {
	place := "row %d of the batch: %.60q"
	if d, ok := a.(*array.Dictionary); ok {
		a, place = d.Dictionary(), "word %d of its dictionary: %.60q"
	}
	texts, ok := a.(interface{ Value(int) string })
	for r := 0; ok && r < a.Len(); r++ {
		if text := texts.Value(r); !utf8.ValidString(text) {
			return fmt.Sprintf(place, r, text)
		}
	}
	return "text within its lists or structs"
}

// read is the next batch, as the library makes it.
func (s *Stream) read() (rec arrow.RecordBatch, err error) {
	defer func() {
		if errors.Is(err, errBeyond) {
			if name := s.beyond(); name != "" {
				err = fmt.Errorf("%w: column %q: %w", ErrPart, name, errBeyond)
			}
		}
	}()
	defer s.memory.recovered(&err)
	s.memory.taken = 0
	rec, err = s.r.Read()
	switch {
	case err == nil:
		return rec, nil
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%w: it is cut off: copy or write the file again: %w", ErrPart, err)
	case s.beyond() != "" || strings.Contains(err.Error(), "runtime error"):
		return nil, errBeyond
	}
	return nil, fmt.Errorf("%w: %w: it is damaged: copy or write the file again", ErrPart, err)
}

// validFull checks an array. The library slices text by its offsets before it has compared them with the text.
func validFull(a arrow.Array) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("its offsets lead beyond its values: it is damaged: copy or write the file again")
		}
	}()
	data := withNulls(a.Data())
	defer data.Release()
	whole := array.MakeFromData(data)
	defer whole.Release()
	return array.ValidateFull(whole)
}

// withNulls are data in which those of type null have a buffer for what is there, which the library asks for and its reader leaves out. The caller releases them.
func withNulls(d arrow.ArrayData) arrow.ArrayData {
	if d.DataType().ID() == arrow.NULL {
		return array.NewData(d.DataType(), d.Len(), []*memory.Buffer{nil}, nil, d.NullN(), d.Offset())
	}
	if len(d.Children()) == 0 {
		d.Retain()
		return d
	}
	var within []arrow.ArrayData
	for _, c := range d.Children() {
		c = withNulls(c)
		defer c.Release()
		within = append(within, c)
	}
	return array.NewData(d.DataType(), d.Len(), d.Buffers(), within, d.NullN(), d.Offset())
}

// Close ends the reading.
func (s *Stream) Close() { s.r.Release() }

// Rows makes columns of some rows of arrays that were found to be right: text plain, zeros beneath missing values. Their text and lists may take
// so many bytes: a dictionary's word can stand for any number of them, and the lists of a list view can all have the same values.
func Rows(arrays []arrow.Array, from, to int, most uint64) ([]arrow.Array, error) {
	out := make([]arrow.Array, 0, len(arrays))
	for c, a := range arrays {
		t, err := ColumnType(plainType(a.DataType()))
		if err == nil {
			b := NewBuilder(t, to-from)
			b.spend(&most)
			if err = b.copyRows(c, a, from, to); err == nil {
				out = append(out, b.Finish())
				continue
			}
		}
		for _, done := range out {
			done.Release()
		}
		return nil, err
	}
	return out, nil
}

// RowError is what is wrong with a value of arrays.
type RowError struct {
	Column, Row int
	Err         error
}

func (e *RowError) Error() string {
	return fmt.Sprintf("column %d: row %d: %v", e.Column, e.Row, e.Err)
}

// Unwrap is what is wrong.
func (e *RowError) Unwrap() error { return e.Err }

func (b *Builder) copyRows(c int, a arrow.Array, from, to int) error {
	put, err := b.optional(a)
	if err != nil {
		return err
	}
	for r := from; r < to; r++ {
		if err = put(r); err == nil {
			continue
		}
		if errors.Is(err, errSpent) {
			err = fmt.Errorf("%w: %d rows take too much memory as columns: write smaller batches", ErrLimit, to-from)
		}
		return &RowError{c, r, err}
	}
	return nil
}

// errSpent is that a builder has no memory left.
var errSpent = errors.New("no memory is left")

// spend makes what text and lists take, of b and of what is within it, be taken from left.
func (b *Builder) spend(left *uint64) {
	b.left = left
	for _, kid := range b.kids {
		kid.spend(left)
	}
}

// take takes memory before it is used. Without an account there is enough: rows of a chunk are no more than the chunk.
func (b *Builder) take(size uint64) error {
	if b.left == nil {
		return nil
	}
	if size > *b.left {
		return errSpent
	}
	*b.left -= size
	return nil
}

// copyText adds text of an array.
func (b *Builder) copyText(v []byte) error {
	if err := b.take(uint64(len(v))); err != nil {
		return err
	}
	return b.Bytes(v)
}

// copier adds a value of an array.
func (b *Builder) copier(a arrow.Array) (func(row int) error, error) {
	switch a := a.(type) {
	case array.ListLike:
		return b.copyList(a)
	case *array.Struct:
		return b.copyStruct(a)
	case *array.Null:
		return func(int) error { b.Null(); return nil }, nil
	case *array.Date64:
		return func(r int) error { return b.days(int64(a.Value(r))) }, nil
	case *array.Boolean:
		return func(r int) error { b.Bool(a.Value(r)); return nil }, nil
	case *array.Dictionary:
		word, err := b.copier(a.Dictionary())
		return func(r int) error {
			n := a.GetValueIndex(r)
			if a.Dictionary().IsNull(n) { // a missing value too
				b.Null()
				return nil
			}
			return word(n)
		}, err
	case interface{ ValueBytes(int) []byte }:
		return func(r int) error { return b.copyText(a.ValueBytes(r)) }, nil
	case interface{ Value(int) string }:
		return func(r int) error { return b.copyText([]byte(a.Value(r))) }, nil
	case interface{ Value(int) []byte }:
		return func(r int) error { return b.copyText(a.Value(r)) }, nil
	}
	if b.size == 0 {
		return nil, fmt.Errorf("%w: columns of Arrow type %v are not supported yet", column.ErrType, a.DataType())
	}
	var values []byte // none of lists that are all empty: the file has no buffer then
	if buffer := a.Data().Buffers()[1]; buffer != nil {
		values = buffer.Bytes()[a.Data().Offset()*b.size:]
	}
	return func(r int) error {
		b.fixed = append(b.fixed, values[r*b.size:(r+1)*b.size]...)
		b.mark(true)
		return nil
	}, nil
}

// dayMillis are what a day has of date64's unit.
const dayMillis = 86_400_000

func (b *Builder) days(millis int64) error {
	days := millis / dayMillis
	if millis%dayMillis != 0 || days != int64(int32(days)) {
		return fmt.Errorf("%w: %d is no whole day of date64 that a date32 holds: write the column as a timestamp", ErrPart, millis)
	}
	b.Bits(uint64(days))
	return nil
}

// allowance is memory that a batch may take. The Arrow library allocates what a few bytes say it will need, before it has read that much.
type allowance struct {
	most, taken uint64
}

// errBeyond is a panic of the library: an index out of what a batch has.
var errBeyond = errors.New("what it says of its values leads beyond them: it is damaged: copy or write the file again")

// spent is what Allocate panics with: its caller cannot fail.
type spent struct{ most uint64 }

func (m *allowance) recovered(err *error) {
	switch r := recover().(type) {
	case nil:
	case spent:
		*err = fmt.Errorf("%w: a batch takes more than %d MiB unpacked: write it in smaller ones", ErrLimit, r.most>>20)
	case error:
		*err = fmt.Errorf("%w: %w", ErrPart, errBeyond)
	default:
		*err = fmt.Errorf("%w: %v", ErrPart, r)
	}
}

const offsetBytes = 4

// takeNulls takes what values of type null become: in a batch they are a number, in a column an offset each.
func (m *allowance) takeNulls(d arrow.ArrayData) {
	if d.DataType().ID() == arrow.NULL {
		n := uint64(max(d.Len(), 0))
		if n > (m.most-min(m.taken, m.most))/offsetBytes {
			panic(spent{m.most})
		}
		m.taken += n * offsetBytes
	}
	for _, c := range d.Children() {
		m.takeNulls(c)
	}
}

func (m *allowance) Allocate(size int) []byte {
	if m.taken += uint64(max(size, 0)); size < 0 || m.taken > m.most {
		panic(spent{m.most})
	}
	return memory.DefaultAllocator.Allocate(size)
}

func (m *allowance) Reallocate(size int, b []byte) []byte {
	if size > len(b) {
		if m.taken += uint64(size - len(b)); m.taken > m.most {
			panic(spent{m.most})
		}
	}
	return memory.DefaultAllocator.Reallocate(size, b)
}

func (m *allowance) Free(b []byte) { memory.DefaultAllocator.Free(b) }

// messages passes an Arrow stream on, message by message, after checking each head.
type messages struct {
	r      *bufio.Reader
	blocks *blocks // of a file; nil: of a stream
	most   uint64
	head   []byte // what was looked at, to be handed on
	last   []byte // the same, without its prefix
	body   uint64 // what follows it
}

func (m *messages) Read(p []byte) (int, error) {
	if len(m.head) == 0 && m.body == 0 {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	if len(m.head) > 0 {
		n := copy(p, m.head)
		m.head = m.head[n:]
		return n, nil
	}
	n, err := m.r.Read(p[:min(uint64(len(p)), m.body)])
	m.body -= uint64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// next looks at the next message's head.
func (m *messages) next() error {
	if m.blocks != nil {
		in, err := m.blocks.next()
		if err != nil {
			return err
		}
		m.r = bufio.NewReader(in)
	}
	prefix := make([]byte, messagePrefix)
	if _, err := io.ReadFull(m.r, prefix[:4]); err != nil {
		return err // io.EOF: a stream may end without saying so
	}
	if binary.LittleEndian.Uint32(prefix) != math.MaxUint32 {
		return errors.New("a message does not begin as Arrow's do since version 0.15: write the file again with a newer program")
	}
	if _, err := io.ReadFull(m.r, prefix[4:]); err != nil {
		return io.ErrUnexpectedEOF
	}
	size := binary.LittleEndian.Uint32(prefix[4:])
	if size == 0 {
		m.head = prefix
		return nil
	}
	if size > maxMessageHead {
		return fmt.Errorf("the head of a message has %d bytes, at most %d are read", size, maxMessageHead)
	}
	head := make([]byte, messagePrefix+int(size))
	copy(head, prefix)
	if _, err := io.ReadFull(m.r, head[messagePrefix:]); err != nil {
		return io.ErrUnexpectedEOF
	}
	message := flatbuffers.Table{Bytes: head[messagePrefix:], Pos: flatbuffers.GetUOffsetT(head[messagePrefix:])}
	body := message.GetInt64Slot(slot(3), 0)
	if body < 0 || uint64(body) > m.most {
		return fmt.Errorf("a message has %d bytes, at most %d are read: write smaller batches", body, m.most)
	}
	if m.blocks != nil {
		if err := m.blocks.agree(uint64(len(head)), uint64(body)); err != nil {
			return err
		}
	}
	if err := checkLists(message, 4); err != nil { // metadata
		return err
	}
	rows, has := table(message, 2)
	if has && message.GetByteSlot(slot(1), 0) == headDict {
		rows, has = table(rows, 1)
	}
	if kind := message.GetByteSlot(slot(1), 0); has && (kind == headDict || kind == headRecord) {
		if err := checkLists(rows, 1, 2, 4); err != nil { // columns, buffers, numbers of buffers
			return err
		}
	}
	if message.GetByteSlot(slot(1), 0) == headSchema {
		schema, ok := table(message, 2)
		if !ok {
			return errors.New("it has no schema")
		}
		if err := checkFields(schema); err != nil {
			return err
		}
	}
	m.head, m.last, m.body = head, head[messagePrefix:], uint64(body)
	return nil
}
