package dataset

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/parquet-go/parquet-go"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// parquetFormat reads Parquet files.
type parquetFormat struct{ o *Options }

func (f parquetFormat) look(ctx context.Context, in Input, _ column.Schema) (column.Schema, error) {
	r, err := f.start(in, PhaseScan)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if len(f.o.ColumnTypes) > 0 {
		return nil, fmt.Errorf("%w: %s says itself which types it has: leave out --types", ErrOptions, in.Name())
	}
	return r.schema, nil
}

func (f parquetFormat) open(ctx context.Context, in Input, phase Phase, s column.Schema) (columnar, error) {
	r, err := f.start(in, phase)
	if err != nil {
		return nil, err
	}
	return inOrder(in, r, s)
}

// damaged makes an error of a panic: the Parquet library panics on some files that are damaged.
func damaged(in string, err *error) {
	if r := recover(); r != nil {
		*err = spoilt(fmt.Errorf("%w: %s: it is damaged: %v", ErrInput, in, r))
	}
}

// spoilt says what mends a file that is not as it was written.
func spoilt(err error) error { return fmt.Errorf("%w: copy or write the file again", err) }

// start opens a file and reads its footer.
func (f parquetFormat) start(in Input, phase Phase) (r *parquetReader, err error) {
	s, err := in.Open()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	defer damaged(in.Name(), &err)
	at, size, ok := randomAccess(in, s)
	if !ok {
		return nil, fmt.Errorf("%w: %s: a Parquet file is compressed inside, and is read from its end: decompress it", ErrInput, in.Name())
	}
	footer, err := newPlainFooter(at, size)
	var file *parquet.File
	if err == nil {
		file, err = parquet.OpenFile(footer, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: it is no Parquet file, or is cut off: copy or write the file again: %w", ErrInput, in.Name(), err)
	}
	r = &parquetReader{name: in.Name(), stream: s, at: at, file: file, footer: footer, most: uint64(f.o.MemoryBytes) / 2, chunkRows: part.ChunkRows, progress: func(done int64) { f.o.Progress(phase, done, size) }, size: size}
	if err := r.columns(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, in.Name(), err)
	}
	if err := footer.agree(file.Metadata().RowGroups, len(r.leaves)); err != nil {
		return nil, spoilt(fmt.Errorf("%w: %s: it is damaged: %w", ErrInput, in.Name(), err))
	}
	return r, nil
}

// randomAccess is an input that is not compressed, to be read anywhere.
func randomAccess(in Input, s Stream) (io.ReaderAt, int64, bool) {
	plain, ok := in.(plainSizer)
	st, is := s.(*stream)
	if !ok || !is {
		return nil, 0, false
	}
	size, ok := plain.plainSize()
	at, is := st.raw.(io.ReaderAt)
	return at, size, ok && is
}

// parquetReader reads a file row group by row group, all columns in step.
type parquetReader struct {
	name      string
	file      *parquet.File
	schema    column.Schema
	shapes    []*shape          // by column
	leaves    []*parquet.Column // of all columns, in their order
	progress  func(done int64)
	size      int64
	width     int    // bytes of a row, without its text
	taken     uint64 // by the chunk that is read
	most      uint64 // that may be taken
	chunkRows int    // the most that are read at once
	stream    Stream
	at        io.ReaderAt
	footer    *plainFooter
	scratch   scratch

	group int // that is read
	left  int64
	pages []*pageReader
	done  int64 // rows
}

func (r *parquetReader) Columns() column.Schema { return r.schema }

// Place counts rows.
func (r *parquetReader) Place() (done, total int64) { return r.done, r.file.NumRows() }

// where is the row group that was read from last.
func (r *parquetReader) where() string { return fmt.Sprintf("row group %d", r.group-1) }

// Close ends the reading.
func (r *parquetReader) Close() {
	r.close()
	r.stream.Close()
}

// columns finds out what the file has.
func (r *parquetReader) columns() error {
	as := r.arrowFields()
	for _, c := range r.file.Root().Columns() {
		name := c.Name()
		s, err := r.shapeOf(c, as[name], 0)
		if err != nil {
			return fmt.Errorf("column %q: %w: write the file again with another type, or without that column", name, err)
		}
		r.schema = append(r.schema, column.Column{Name: name, Type: s.typ, Nullable: c.Optional()})
		r.shapes = append(r.shapes, s)
		if r.width += max(s.typ.Size(), 1); s.typ.Varies() || s.typ.Nested() {
			r.width += 3 // of the offset
		}
	}
	return r.schema.Validate()
}

// arrowFields are columns as programs of the Arrow project leave them in the file's metadata: with time zones, durations and extensions, which Parquet itself forgets.
func (r *parquetReader) arrowFields() map[string]arrow.Field {
	out := map[string]arrow.Field{}
	text, ok := r.file.Lookup("ARROW:schema")
	if !ok {
		return out
	}
	s, err := part.ParseSchema(text)
	if err != nil {
		return out
	}
	for _, f := range s.Fields() {
		out[f.Name] = f
	}
	return out
}

// Next reads the next chunk.
func (r *parquetReader) Next(ctx context.Context) (columns []arrow.Array, err error) {
	defer damaged(r.name, &err)
	defer func() {
		if errors.Is(err, ErrTooLarge) {
			err = fmt.Errorf("%s: %w", r.name, err)
		}
	}()
	r.taken = 0
	for r.left == 0 {
		r.close()
		if r.group == len(r.file.RowGroups()) {
			return nil, io.EOF
		}
		if err := r.checkPages(r.at, r.group); err != nil {
			return nil, err
		}
		r.group++
		r.left = r.file.RowGroups()[r.group-1].NumRows()
		r.openPages()
	}
	for {
		n := int(min(r.left, int64(r.chunkRows), int64(max(maxChunkBytes/r.width, 1))))
		columns, err := r.rows(ctx, n)
		if !errors.Is(err, part.ErrText) || n == 1 {
			return columns, err
		}
		r.chunkRows, r.taken = (n+1)/2, 0 // of which a column has less text
		if err := r.again(); err != nil {
			return nil, err
		}
	}
}

// openPages begins to read a row group.
func (r *parquetReader) openPages() {
	chunks := r.file.RowGroups()[r.group-1].ColumnChunks()
	for _, leaf := range r.leaves {
		r.pages = append(r.pages, &pageReader{pages: r.pagesOf(r.group-1, leaf, chunks[leaf.Index()]), buf: make([]parquet.Value, 0, pageValues)})
	}
}

// again reads a row group from its start, and passes the rows that were handed out.
func (r *parquetReader) again() error {
	r.close()
	r.openPages()
	done := r.file.RowGroups()[r.group-1].NumRows() - r.left
	for i, p := range r.pages {
		if err := p.pass(done, r.leaves[i].MaxRepetitionLevel() > 0); err != nil {
			return fmt.Errorf("row group %d, column %q: %w", r.group-1, r.leaves[i].Name(), err)
		}
	}
	return nil
}

// rows reads n rows.
func (r *parquetReader) rows(ctx context.Context, n int) ([]arrow.Array, error) {
	if err := r.take(uint64(n * r.width)); err != nil {
		return nil, err
	}
	out := make([]arrow.Array, 0, len(r.schema))
	for c := range r.schema {
		if err := context.Cause(ctx); err != nil {
			releaseAll(out)
			return nil, err
		}
		a, err := r.oneColumn(c, n)
		if err != nil {
			releaseAll(out)
			return nil, fmt.Errorf("row group %d, column %q: %w", r.group-1, r.schema[c].Name, err)
		}
		out = append(out, a)
	}
	r.left -= int64(n)
	r.done += int64(n)
	r.progress(int64(float64(r.size) * float64(r.done) / float64(max(r.file.NumRows(), 1))))
	return out, nil
}

// pagesOf are the pages of a column of a row group, which were looked at.
func (r *parquetReader) pagesOf(group int, leaf *parquet.Column, chunk parquet.ColumnChunk) parquet.Pages {
	codec := r.footer.codecOf(group, leaf.Index(), len(r.leaves))
	m := &r.file.Metadata().RowGroups[group].Columns[leaf.Index()].MetaData
	first, size := firstPage(m), m.TotalCompressedSize
	pages := &plainPages{in: bufio.NewReaderSize(io.NewSectionReader(r.at, first, size), 4<<10), left: size, codec: codec, column: leaf, scratch: &r.scratch, most: int64(r.most), dictionary: -1, at: first}
	defer func() { m.TotalCompressedSize = size }()
	m.TotalCompressedSize = math.MaxInt64 - first // what it is unpacked is found when it is read
	return chunk.(*parquet.FileColumnChunk).PagesFrom(pages)
}

// take counts bytes before there is memory for them: a few bytes of a file can stand for any number of values.
func (r *parquetReader) take(n uint64) error {
	if r.taken += n; r.taken > r.most {
		return fmt.Errorf("%w: %d rows of it take more than %d MiB: write the file again with fewer columns, or less text in a value", ErrTooLarge, r.chunkRows, r.most>>20)
	}
	return nil
}

func releaseAll(arrays []arrow.Array) {
	for _, a := range arrays {
		a.Release()
	}
}

// oneColumn makes an error of a panic, so that it has the column's name.
func (r *parquetReader) oneColumn(c, n int) (a arrow.Array, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = spoilt(fmt.Errorf("it is damaged: %v", r))
		}
	}()
	if a, err = r.column(c, n); err != nil {
		return nil, err
	}
	if stray := (*part.RangeError)(nil); errors.As(part.CheckRange(a), &stray) {
		a.Release()
		return nil, fmt.Errorf("row %d of the file: %s", r.done+int64(stray.Row), stray.Why)
	}
	return a, nil
}

// column reads n values of a column.
func (r *parquetReader) column(c, n int) (arrow.Array, error) {
	s := r.shapes[c]
	if !s.flat() {
		return r.nested(s, n)
	}
	b := part.NewBuilder(s.typ, n)
	before := 0 // text that was counted
	for b.Rows() < n {
		values, err := r.pages[s.leaf].next(n - b.Rows())
		if err != nil {
			if err == io.EOF {
				err = spoilt(fmt.Errorf("it ends %d rows early", n-b.Rows()))
			}
			return nil, err
		}
		for _, v := range values {
			if v.IsNull() {
				b.Null()
			} else if err := s.put(b, v); err != nil {
				return nil, fmt.Errorf("row %d of the file: %w", r.done+int64(b.Rows()), err)
			}
			if text := b.TextBytes(); text-before > 1<<20 || b.Rows() == n {
				if err := r.take(uint64(text - before)); err != nil {
					return nil, err
				}
				before = text
			}
		}
	}
	return b.Finish(), nil
}

// close ends the reading of a row group.
func (r *parquetReader) close() {
	for _, p := range r.pages {
		p.close()
	}
	r.pages = nil
}

// pageValues are read at a time: enough for a call to be nothing, and few enough to stay in the processor's cache.
const pageValues = 1024

// maxChunkBytes bounds what a chunk has without its text: memory is taken for it before its values are read.
const maxChunkBytes = 64 << 20

// pageReader reads a column's values, page after page.
type pageReader struct {
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
	buf    []parquet.Value
	ahead  []parquet.Value // of buf: not taken yet
}

// next reads at most n values. They are valid until the next call.
func (p *pageReader) next(n int) ([]parquet.Value, error) {
	for {
		if p.values == nil {
			page, err := p.pages.ReadPage()
			if err == io.EOF || errors.Is(err, ErrTooLarge) { // which says what to do
				return nil, err
			} else if err != nil {
				return nil, spoilt(err)
			}
			p.page, p.values = page, page.Values()
		}
		got, err := p.values.ReadValues(p.buf[:min(n, cap(p.buf))])
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, spoilt(err)
		}
		if err != nil && got == 0 {
			parquet.Release(p.page)
			p.page, p.values = nil, nil
			continue
		}
		if got == 0 {
			return nil, io.ErrNoProgress
		}
		return p.buf[:got], nil
	}
}

// pass passes rows. Those of lists have any number of values, of which the first begins the row.
func (p *pageReader) pass(rows int64, lists bool) error {
	for !lists && rows > 0 {
		values, err := p.next(int(min(rows, pageValues)))
		if err != nil {
			return err
		}
		rows -= int64(len(values))
	}
	for rows > 0 {
		if _, err := p.peek(); err != nil {
			return err
		}
		p.pop()
		if v, err := p.peek(); err == io.EOF || err == nil && v.RepetitionLevel() == 0 {
			rows--
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (p *pageReader) close() {
	if p.page != nil {
		parquet.Release(p.page)
	}
	p.pages.Close()
}

// parquetTypeName is a column's type in the words of its file.
func parquetTypeName(leaf *parquet.Column) string {
	name := strings.ToLower(leaf.Type().Kind().String())
	if l := leaf.Type().LogicalType(); l != nil {
		name += " (" + l.String() + ")"
	}
	return name
}
