package part

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/wherry-fabric/wherry/column"
)

// Part is an Arrow IPC file in memory that was found to be right.
type Part struct {
	Columns column.Schema
	Rows    uint64

	bytes   []byte
	schema  *arrow.Schema
	frame   *frame
	words   []arrow.Array // of dictionaries, by column; nil: its values are plain
	places  []span        // of their buffers, three for each column
	entries []byte        // the directory's, of all chunks
}

// Open checks a part wholly: what is wrong with it once it is sealed would go wrong in functions. The bytes must not change.
func Open(b []byte) (p *Part, err error) {
	defer func() { // the flatbuffers library, and Arrow's, panic on some of what is wrong
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("%w: %v", ErrPart, r)
		}
	}()
	p = &Part{bytes: b}
	if p.frame, err = readFrame(b); err == nil {
		err = p.readSchema()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPart, err)
	}
	for i := range p.frame.chunks {
		if err := p.checkChunk(p.frame.chunks[i]); err != nil {
			return nil, fmt.Errorf("%w: chunk %d: %w", ErrPart, i, err)
		}
	}
	return p, nil
}

// readSchema reads the columns, and the words of their dictionaries.
func (p *Part) readSchema() error {
	r, err := ipc.NewFileReader(bytes.NewReader(p.bytes))
	if err != nil {
		return err
	}
	defer r.Close()
	p.schema = r.Schema()
	if p.Columns, err = Columns(p.schema); err != nil {
		return err
	}
	if len(p.frame.dictionaryIDs) != len(p.Columns) || len(p.Columns) > column.MaxColumns {
		return fmt.Errorf("it has %d columns", len(p.Columns))
	}
	p.words, p.places = make([]arrow.Array, len(p.Columns)), make([]span, 3*len(p.Columns))
	for c, id := range p.frame.dictionaryIDs {
		if id < 0 || len(p.frame.chunks) == 0 {
			continue
		}
		bt, ok := p.frame.dictionaries[id]
		if !ok || len(bt.nodes) != 1 {
			return fmt.Errorf("column %q has no dictionary, or one of several columns", p.Columns[c].Name)
		}
		a, err := p.values(c, &bt, arrow.BinaryTypes.String, p.places[3*c:])
		if err == nil {
			err = array.ValidateFull(a)
		}
		if err != nil {
			return fmt.Errorf("the dictionary of column %q: %w", p.Columns[c].Name, err)
		}
		p.words[c] = a
	}
	return nil
}

// readChunk makes the arrays of a chunk, which are views of the file, and says where their buffers are: three for each column, the
// last one of text only.
func (p *Part) readChunk(bt batch) (arrow.RecordBatch, []span, error) {
	places := make([]span, 3*len(p.Columns))
	columns := make([]arrow.Array, len(p.Columns))
	for c, f := range p.schema.Fields() {
		a, err := p.values(c, &bt, f.Type, places[3*c:])
		if err != nil {
			return nil, nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		columns[c] = a
	}
	if bt.rows == 0 || len(bt.spans) != 0 || len(bt.nodes) != 0 {
		return nil, nil, fmt.Errorf("it has %d rows, and %d columns and %d buffers that are none of the schema's", bt.rows, len(bt.nodes), len(bt.spans))
	}
	return array.NewRecordBatch(p.schema, columns, int64(bt.rows)), places, nil
}

// checkChunk checks a chunk and notes what the directory says of it. Its arrays are not kept: they take many times what a small
// chunk takes in the file.
func (p *Part) checkChunk(bt batch) error {
	rec, places, err := p.readChunk(bt)
	if err != nil {
		return err
	}
	p.entries = binary.LittleEndian.AppendUint64(p.entries, p.Rows)
	p.entries = binary.LittleEndian.AppendUint64(p.entries, uint64(bt.rows))
	for c, a := range rec.Columns() {
		f := p.schema.Field(c)
		if err := checkColumn(a); err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
		if !f.Nullable && a.NullN() > 0 {
			return fmt.Errorf("column %q: %d values are missing in a column that misses none", f.Name, a.NullN())
		}
		p.entries = appendEntry(p.entries, a, places[3*c:])
	}
	p.Rows += uint64(bt.rows)
	return nil
}

// values makes a column's array of a batch, and notes where its buffers are.
func (p *Part) values(c int, bt *batch, t arrow.DataType, places []span) (arrow.Array, error) {
	has, err := bt.takeNode()
	if err == nil && has.length != int64(bt.rows) {
		err = fmt.Errorf("it has %d values, %d rows", has.length, bt.rows)
	}
	if err != nil {
		return nil, err
	}
	if t.ID() == arrow.LIST || t.ID() == arrow.STRUCT {
		return p.nested(bt, t, has, places)
	}
	nulls := has.nulls
	spans, err := bt.takeSpans(t, has)
	if err != nil {
		return nil, err
	}
	copy(places, spans)
	if nulls == 0 {
		places[0] = span{}
	}
	var data *array.Data
	if d, ok := t.(*arrow.DictionaryType); ok {
		if p.words[c] == nil || !arrow.TypeEqual(d.ValueType, arrow.BinaryTypes.String) || d.Ordered {
			return nil, fmt.Errorf("its dictionary is %v; want one of text", d)
		}
		if size := d.IndexType.(arrow.FixedWidthDataType).Bytes(); size > 2 { // functions read no others
			return nil, fmt.Errorf("its dictionary has numbers of %d bytes; want 1 or 2", size)
		}
		data = array.NewDataWithDictionary(t, bt.rows, buffers(p.bytes, spans), int(nulls), 0, p.words[c].Data().(*array.Data))
	} else {
		data = array.NewData(t, bt.rows, buffers(p.bytes, spans), nil, int(nulls), 0)
	}
	defer data.Release()
	if err := array.Validate(array.MakeFromData(data)); err != nil {
		return nil, err
	}
	return array.MakeFromData(data), nil
}

// Chunks is how many there are.
func (p *Part) Chunks() int { return len(p.frame.chunks) }

// Chunk is one of them. Its arrays lie in the part's bytes.
func (p *Part) Chunk(i int) arrow.RecordBatch {
	rec, _, err := p.readChunk(p.frame.chunks[i])
	if err != nil { // Open has read it
		panic(err)
	}
	return rec
}

// checkColumn finds what a column of a chunk must not have.
func checkColumn(a arrow.Array) error {
	if err := array.ValidateFull(a); err != nil { // what is within it too
		return err
	}
	if err := checkValues(a); err != nil {
		return err
	}
	return CheckRange(a)
}

func checkValues(a arrow.Array) error {
	switch a := a.(type) {
	case *array.Dictionary:
		return checkNumbers(a)
	case *array.String:
		return checkText(a)
	case *array.List:
		return checkList(a)
	case *array.Struct:
		return checkStruct(a)
	}
	return checkZeros(a)
}

// checkNumbers finds numbers that the dictionary does not have. A missing value must have the number 0, and the dictionary a word for it.
func checkNumbers(a *array.Dictionary) error {
	words, text := a.Dictionary().(*array.String), 0
	for r := range a.Len() {
		n := a.GetValueIndex(r)
		if n < 0 || n >= words.Len() {
			return fmt.Errorf("row %d is word %d of a dictionary of %d", r, n, words.Len())
		}
		if text += words.ValueLen(n); text > MaxTextBytes { // whoever reads it has it plain
			return fmt.Errorf("it has more than %d bytes of text", MaxTextBytes)
		}
	}
	return nil
}

// checkText finds text beneath missing values; that it is UTF-8 has been seen.
func checkText(a *array.String) error {
	for r := range a.Len() {
		if a.IsNull(r) && a.ValueLen(r) != 0 {
			return fmt.Errorf("row %d is missing, and has %d bytes of text", r, a.ValueLen(r))
		}
	}
	return nil
}

// checkZeros finds values beneath missing ones: functions add without asking.
func checkZeros(a arrow.Array) error {
	if a.NullN() == 0 {
		return nil
	}
	t, ok := a.DataType().(arrow.FixedWidthDataType)
	if !ok {
		return nil
	}
	valid, values := a.Data().Buffers()[0].Bytes(), a.Data().Buffers()[1].Bytes()
	if t.BitWidth() == 1 {
		for i := range (a.Len() + 7) / 8 {
			mask := byte(0xff)
			if left := a.Len() - 8*i; left < 8 {
				mask = 1<<left - 1
			}
			if extra := values[i] & mask &^ valid[i]; extra != 0 {
				return fmt.Errorf("row %d is missing, and is not false", 8*i+bits.TrailingZeros8(extra))
			}
		}
		return nil
	}
	size := t.BitWidth() / 8
	zero := make([]byte, size)
	for r := range a.Len() {
		if a.IsNull(r) && !bytes.Equal(values[r*size:][:size], zero) {
			return fmt.Errorf("row %d is missing, and its bytes are not zero", r)
		}
	}
	return nil
}
