package part

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
)

// Lists and structs. A list has 32-bit offsets into its values, which begin at 0 and end where the values do; a missing list has no values, and of a
// missing struct all fields are missing. Text within is plain. Functions see in the directory where validity and offsets are, and not what is within.

// maxDepth is how deep fields are within each other when a schema is read: a map's entries are a struct within it.
const maxDepth = column.MaxNesting + 1

// within makes the builders of what a type has within it, with room for so many.
func (b *Builder) within(rows int) {
	for _, f := range b.typ.Fields() {
		b.kids = append(b.kids, NewBuilder(f.Type, rows))
	}
	if b.typ.ID == column.List {
		b.offsets = make([]byte, 4, 4*(rows+1))
	}
}

// Within is the builder of a struct's field, or with 0 of a list's values. What is added to it belongs to the list or the struct that Close ends.
func (b *Builder) Within(i int) *Builder { return b.kids[i] }

// Close adds a list of the values that were added since the one before, or a struct of the values that were added to each field.
func (b *Builder) Close() error {
	if b.typ.ID == column.List {
		b.offsets = binary.LittleEndian.AppendUint32(b.offsets, uint32(b.kids[0].rows))
	}
	b.mark(true)
	return b.Room()
}

// Room reports that what is within a chunk's lists and structs is more than it may be.
func (b *Builder) Room() error {
	if b.TextBytes() > MaxTextBytes || b.kids[0].rows > MaxTextBytes {
		return errListRoom
	}
	return nil
}

// SplitRow is what mends it that one row has more than a chunk may have.
const SplitRow = "split that row's list or struct into several rows, or leave its column out"

// errListRoom is ErrText of lists.
var errListRoom = fmt.Errorf("%w, or in its lists", ErrText)

// nullWithin adds a missing list or struct.
func (b *Builder) nullWithin() {
	if b.typ.ID == column.List {
		b.offsets = append(b.offsets, b.offsets[len(b.offsets)-4:]...)
		return
	}
	for _, kid := range b.kids {
		kid.Null()
	}
}

// cutWithin drops values of lists and structs behind the first rows, and values that belong to no row.
func (b *Builder) cutWithin(rows int) {
	if b.typ.ID == column.List {
		b.offsets = b.offsets[:4*(rows+1)]
		rows = int(binary.LittleEndian.Uint32(b.offsets[4*rows:]))
	}
	for _, kid := range b.kids {
		kid.Cut(rows)
	}
}

// bytesWithin is about what the values within take.
func (b *Builder) bytesWithin() (n int) {
	for _, kid := range b.kids {
		n += len(kid.fixed) + len(kid.offsets) + kid.TextBytes()
	}
	return n
}

// finishWithin makes the array.
func (b *Builder) finishWithin(valid *memory.Buffer) arrow.Array {
	buffers := []*memory.Buffer{valid}
	if b.typ.ID == column.List {
		buffers = append(buffers, memory.NewBufferBytes(b.offsets))
	}
	var kids []arrow.ArrayData
	for _, kid := range b.kids {
		a := kid.Finish()
		defer a.Release()
		kids = append(kids, a.Data())
	}
	data := array.NewData(ArrowType(b.typ), b.rows, buffers, kids, b.nulls, 0)
	defer data.Release()
	return array.MakeFromData(data)
}

// copyList adds a list of an array.
func (b *Builder) copyList(a array.ListLike) (func(row int) error, error) {
	put, err := b.kids[0].optional(a.ListValues())
	return func(r int) error {
		from, to := a.ValueOffsets(r)
		if to-from > MaxTextBytes {
			return fmt.Errorf("%w: a list of %d values, at most %d are allowed", ErrLimit, to-from, MaxTextBytes)
		}
		if err := b.takeList(int(to - from)); err != nil {
			return err
		}
		for i := from; i < to; i++ {
			if err := put(int(i)); err != nil {
				return err
			}
		}
		return b.Close()
	}, err
}

// takeList takes memory for a list of so many values, if a chunk has room for it: lists of a view may share values, of which each gets its own.
func (b *Builder) takeList(values int) error {
	size := values * b.kids[0].least()
	if b.TextBytes()+size > MaxTextBytes || b.kids[0].rows+values > MaxTextBytes {
		return errListRoom
	}
	return b.take(uint64(size))
}

// least is how many bytes a value takes at least, a missing one too.
func (b *Builder) least() (n int) {
	switch {
	case b.offsets != nil:
		return offsetBytes
	case b.kids == nil:
		return b.size // 0: a bit
	}
	for _, kid := range b.kids {
		n += kid.least()
	}
	return n
}

// copyStruct adds a struct of an array.
func (b *Builder) copyStruct(a *array.Struct) (func(row int) error, error) {
	var puts []func(int) error
	for i, kid := range b.kids {
		put, err := kid.optional(a.Field(i))
		if err != nil {
			return nil, err
		}
		puts = append(puts, put)
	}
	return func(r int) error {
		for _, put := range puts {
			if err := put(r); err != nil {
				return err
			}
		}
		return b.Close()
	}, nil
}

// optional adds a value of an array, which may be missing.
func (b *Builder) optional(a arrow.Array) (func(row int) error, error) {
	put, err := b.copier(a)
	return func(r int) error {
		if a.IsNull(r) {
			b.Null()
			return nil
		}
		return put(r)
	}, err
}

// takeSpans removes the buffers of values that have nothing within them.
func (bt *batch) takeSpans(t arrow.DataType, has node) ([]span, error) {
	n := 2
	switch {
	case arrow.IsBaseBinary(t.ID()):
		n = 3
	case t.ID() == arrow.STRUCT:
		n = 1
	}
	spans, err := bt.take(n)
	switch {
	case err != nil:
		return nil, err
	case has.nulls > 0 && spans[0].size == 0:
		return nil, fmt.Errorf("%d of %d values are missing, and it does not say which", has.nulls, has.length)
	case n > 1 && has.length > 0 && spans[1].size == 0: // the Arrow library lets bits be missing
		return nil, fmt.Errorf("its values are not there")
	}
	return spans, nil
}

// nested makes a list or a struct of a batch, and notes where its own buffers are; places is nil for one that is within another.
func (p *Part) nested(bt *batch, t arrow.DataType, has node, places []span) (arrow.Array, error) {
	data, err := p.dataWithin(bt, t, has, places)
	if err != nil {
		return nil, err
	}
	defer data.Release()
	if err := array.Validate(array.MakeFromData(data)); err != nil {
		return nil, err
	}
	return array.MakeFromData(data), nil
}

// dataWithin makes the array data of a column of any type within a chunk, and of the columns nested in it.
func (p *Part) dataWithin(bt *batch, t arrow.DataType, has node, places []span) (*array.Data, error) {
	if t.ID() == arrow.DICTIONARY {
		return nil, fmt.Errorf("text within a list or a struct is plain, and this is %v", t)
	}
	spans, err := bt.takeSpans(t, has)
	if err != nil {
		return nil, err
	}
	if copy(places, spans); has.nulls == 0 && places != nil {
		places[0] = span{}
	}
	var fields []arrow.Field
	if n, ok := t.(arrow.NestedType); ok {
		fields = n.Fields()
	}
	var kids []arrow.ArrayData
	for _, f := range fields {
		within, err := bt.takeNode()
		if err == nil && t.ID() == arrow.STRUCT && within.length != has.length {
			err = fmt.Errorf("%d values of %d structs", within.length, has.length)
		}
		var kid *array.Data
		if err == nil {
			kid, err = p.dataWithin(bt, f.Type, within, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		defer kid.Release()
		kids = append(kids, kid)
	}
	return array.NewData(t, int(has.length), buffers(p.bytes, spans), kids, int(has.nulls), 0), nil
}

// checkList finds offsets that leave values out, and values of missing lists. The caller has checked that offsets rise, and end where the values do.
func checkList(a *array.List) error {
	if n := a.Len(); n > 0 {
		first, _ := a.ValueOffsets(0)
		_, end := a.ValueOffsets(n - 1)
		if first != 0 || end != int64(a.ListValues().Len()) {
			return fmt.Errorf("its lists have the values %d to %d of %d", first, end, a.ListValues().Len())
		}
	}
	for r := range a.Len() {
		if from, to := a.ValueOffsets(r); a.IsNull(r) && from != to {
			return fmt.Errorf("row %d is missing, and has %d values", r, to-from)
		}
	}
	return checkValues(a.ListValues())
}

// checkStruct finds fields of missing structs that are there.
func checkStruct(a *array.Struct) error {
	for i := range a.NumField() {
		f := a.Field(i)
		for r := range a.Len() {
			if a.IsNull(r) && !f.IsNull(r) {
				return fmt.Errorf("row %d is missing, and its field %d is there", r, i)
			}
		}
		if err := checkValues(f); err != nil {
			return fmt.Errorf("field %d: %w", i, err)
		}
	}
	return nil
}
