package dataset

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// The Parquet library makes room for what a page says that it has, and unpacks as much as there is: some bytes of a file can stand for any
// number of them. So pages are looked at before the library reads them.

const (
	// maxPageValues bounds the values of a page: a run of one value takes a few bytes there, and some for each value once it is read.
	maxPageValues = 32 << 20
	// maxZstdBlock is the most that a block of a zstd frame holds.
	maxZstdBlock = 128 << 10
	// maxLZ4Ratio is the most that a byte of LZ4 stands for.
	maxLZ4Ratio = 255
)

// checkPages looks at all pages of a row group.
func (r *parquetReader) checkPages(at io.ReaderAt, group int) error {
	columns := r.file.Metadata().RowGroups[group].Columns
	for _, leaf := range r.leaves {
		if leaf.Index() >= len(columns) {
			return spoilt(fmt.Errorf("row group %d has %d columns, the file more", group, len(columns)))
		}
		m := &columns[leaf.Index()].MetaData
		first := firstPage(m)
		if first < 0 || m.TotalCompressedSize < 0 || first > r.size || m.TotalCompressedSize > r.size-first {
			return spoilt(fmt.Errorf("row group %d, column %q: its pages lie at %d, %d bytes of a file of %d: it is cut off", group, leaf.Name(), first, m.TotalCompressedSize, r.size))
		}
		pages := pageChecker{in: bufio.NewReaderSize(io.NewSectionReader(at, first, m.TotalCompressedSize), 64<<10), codec: r.footer.codecOf(group, leaf.Index(), len(r.leaves)), column: leaf, most: int64(r.most)}
		if err := pages.check(m.TotalCompressedSize); err != nil {
			if !errors.Is(err, ErrTooLarge) && !errors.Is(err, errPacked) && !errors.Is(err, errOldLevels) { // which say what to do
				err = spoilt(err)
			}
			return fmt.Errorf("row group %d, column %q: %w", group, leaf.Name(), err)
		}
	}
	return nil
}

// firstPage is where the pages of a column of a row group begin.
func firstPage(m *format.ColumnMetaData) int64 {
	if m.DictionaryPageOffset != 0 {
		return m.DictionaryPageOffset
	}
	return m.DataPageOffset
}

// pageChecker looks at the pages of a column of a row group.
type pageChecker struct {
	in     *bufio.Reader
	codec  format.CompressionCodec
	column *parquet.Column
	most   int64 // bytes that a page may have
	read   int64
}

// Read is for the header's decoder, which takes no more than it needs.
func (p *pageChecker) Read(b []byte) (int, error) {
	n, err := p.in.Read(b)
	p.read += int64(n)
	return n, err
}

// ReadByte is the same.
func (p *pageChecker) ReadByte() (byte, error) {
	b, err := p.in.ReadByte()
	if err == nil {
		p.read++
	}
	return b, err
}

func (p *pageChecker) check(total int64) error {
	var protocol thrift.CompactProtocol
	for page := 0; p.read < total; page++ {
		var h format.PageHeader
		if err := thrift.NewDecoder(protocol.NewReader(p)).Decode(&h); err != nil {
			return fmt.Errorf("page %d: its header is damaged: %w", page, err)
		}
		size, plain := int64(h.CompressedPageSize), int64(h.UncompressedPageSize)
		values := max(h.DataPageHeader.V.NumValues, h.DataPageHeaderV2.V.NumValues, h.DictionaryPageHeader.V.NumValues)
		switch {
		case min(size, plain) < 0:
			return fmt.Errorf("page %d: its header says that it has %d bytes: it is damaged", page, min(size, plain))
		case size > total-p.read:
			return fmt.Errorf("page %d: it has %d bytes, and %d are left: it is cut off", page, size, total-p.read)
		case plain > p.most:
			return p.tooLarge(page, "has %d MiB", plain>>20)
		case values > maxPageValues:
			return p.tooLarge(page, "has %d values", values)
		}
		if v1 := &h.DataPageHeader.V; h.Type == format.DataPage && (p.column.MaxRepetitionLevel() > 0 && v1.RepetitionLevelEncoding != format.RLE || p.column.MaxDefinitionLevel() > 0 && v1.DefinitionLevelEncoding != format.RLE) {
			return fmt.Errorf("page %d: %w", page, errOldLevels)
		}
		body := &io.LimitedReader{R: p.in, N: size}
		bound, err := p.bound(&h, body)
		if err == nil && bound > p.most {
			err = p.tooLarge(page, "unpacks to more than %d MiB", p.most>>20)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, body)
		}
		if err != nil {
			return fmt.Errorf("page %d: %w", page, err)
		}
		p.read += size
	}
	return nil
}

// bound is at least what a page unpacks to. A page of version 2 begins with levels, which are not packed, and says whether its values are.
func (p *pageChecker) bound(h *format.PageHeader, body *io.LimitedReader) (int64, error) {
	if h.Type != format.DataPageV2 { // which is what the library goes by, whatever headers there are
		return unpackedBound(p.codec, body, body.N, p.most)
	}
	v2 := &h.DataPageHeaderV2.V
	repetition, definition := int64(v2.RepetitionLevelsByteLength), int64(v2.DefinitionLevelsByteLength)
	levels, codec := repetition+definition, p.codec
	if min(repetition, definition) < 0 || levels > body.N {
		return 0, fmt.Errorf("its levels have %d and %d bytes, the page has %d: it is damaged", repetition, definition, body.N)
	}
	if packed := v2.IsCompressed; packed.Valid && !packed.V {
		codec = format.Uncompressed
	}
	if _, err := io.CopyN(io.Discard, body, levels); err != nil {
		return 0, err
	}
	values, err := unpackedBound(codec, body, body.N, p.most)
	return levels + min(values, 1<<62), err
}

func (p *pageChecker) tooLarge(page int, what string, args ...any) error {
	return fmt.Errorf("%w: page %d %s, at most %d MiB are read: write the file again with smaller pages", ErrTooLarge, page, fmt.Sprintf(what, args...), p.most>>20)
}

// unpackedBound is at least what a page's bytes unpack to, found without unpacking them where their form allows.
func unpackedBound(codec format.CompressionCodec, in io.Reader, size, most int64) (int64, error) {
	switch codec {
	case format.Uncompressed:
		return size, nil
	case format.Snappy:
		if size == 0 {
			return 0, nil
		}
		n, err := binary.ReadUvarint(bufio.NewReader(io.LimitReader(in, binary.MaxVarintLen64)))
		if err != nil {
			return 0, fmt.Errorf("it is not packed with snappy: %w", err)
		}
		return int64(min(n, 1<<62)), nil
	case format.Lz4Raw:
		return size * maxLZ4Ratio, nil
	case format.Gzip:
		if size*1032 <= most { // no deflate is denser
			return size * 1032, nil
		}
		z, err := gzip.NewReader(in)
		if err != nil {
			return 0, fmt.Errorf("it is not packed with gzip: %w", err)
		}
		return io.Copy(io.Discard, io.LimitReader(z, most+1))
	case format.Zstd:
		return zstdBound(in, size, most)
	}
	return 0, fmt.Errorf("%w: that is %v: write the file again with zstd, snappy or gzip", errPacked, codec)
}

var errPacked = errors.New("it is packed so that its size cannot be known before it is unpacked")

// zstdBound walks over the blocks of zstd frames: a block says what it holds, or has at most 128 KiB.
func zstdBound(in io.Reader, size, most int64) (int64, error) {
	r := &walker{r: bufio.NewReader(in), left: size}
	bound := int64(0)
	for r.left > 0 && r.err == nil && bound <= most {
		var h zstd.Header
		head, _ := r.r.Peek(int(min(r.left, zstd.HeaderMaxSize)))
		if err := h.Decode(head); err != nil {
			return 0, fmt.Errorf("it is not packed with zstd: %w", err)
		}
		if h.Skippable {
			r.skip(8 + int64(h.SkippableSize))
			continue
		}
		if h.WindowSize > uint64(most) && h.WindowSize > maxZstdWindow {
			return int64(min(h.WindowSize, 1<<62)), nil // it is taken before anything is unpacked
		}
		r.skip(int64(h.HeaderSize))
		for last := false; !last && r.err == nil && bound <= most; {
			var b [3]byte
			r.full(b[:])
			v := int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16
			last = v&1 != 0
			switch n := v >> 3; v >> 1 & 3 {
			case 0:
				bound += n
				r.skip(n)
			case 1:
				bound += n
				r.skip(1)
			default:
				bound += maxZstdBlock
				r.skip(n)
			}
		}
		if h.HasCheckSum && bound <= most {
			r.skip(4)
		}
	}
	if r.err != nil {
		return 0, fmt.Errorf("its zstd frames are cut off: %w", r.err)
	}
	return bound, nil
}

// walker goes over bytes, and keeps the first error.
type walker struct {
	r    *bufio.Reader
	left int64
	err  error
}

func (w *walker) skip(n int64) {
	if w.err == nil && n > w.left {
		w.err = io.ErrUnexpectedEOF
	}
	if w.err == nil {
		_, w.err = io.CopyN(io.Discard, w.r, n)
		w.left -= n
	}
}

func (w *walker) full(b []byte) {
	if w.err == nil {
		_, w.err = io.ReadFull(w.r, b)
		w.left -= int64(len(b))
	}
}
