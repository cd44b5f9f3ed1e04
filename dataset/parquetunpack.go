package dataset

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// scratch is the memory in which pages are unpacked. All columns of a reader share it: a page is handed on as a whole before the next one is read.
type scratch struct {
	packed, plain, bits []byte
	head                bytes.Buffer
	gzip                gzip.Reader
	zstd                *zstd.Decoder
}

// room is n bytes of memory that is used again; they are not zeros.
func room(b *[]byte, n int) []byte {
	if cap(*b) < n {
		*b = make([]byte, n)
	}
	return (*b)[:n]
}

// unpack fills plain, the size of which a page's header says, and no byte more or less.
func (s *scratch) unpack(codec format.CompressionCodec, packed, plain []byte) error {
	n, err := s.unpackTo(codec, packed, plain)
	if err != nil {
		return fmt.Errorf("it is not packed with %v: %w", codec, err)
	}
	if n != len(plain) {
		return fmt.Errorf("it unpacks to %d bytes, and its header says %d", n, len(plain))
	}
	return nil
}

// unpackTo returns how many bytes there are.
func (s *scratch) unpackTo(codec format.CompressionCodec, packed, plain []byte) (int, error) {
	switch {
	case codec == format.Uncompressed:
		copy(plain, packed)
		return len(packed), nil
	case len(plain) == 0 && len(packed) <= 1: // some programs do not pack nothing
		return 0, nil
	}
	switch codec {
	case format.Snappy:
		if n, err := snappy.DecodedLen(packed); err != nil || n != len(plain) {
			return n, err
		}
		out, err := snappy.Decode(plain, packed)
		return copy(plain, out), err
	case format.Gzip:
		if err := s.gzip.Reset(bytes.NewReader(packed)); err != nil {
			return 0, err
		}
		n, err := io.ReadFull(&s.gzip, plain)
		if err != nil {
			return n, err
		}
		more, err := io.Copy(io.Discard, io.LimitReader(&s.gzip, 1)) // its end has a checksum
		return n + int(more), err
	case format.Zstd:
		if s.zstd == nil {
			var err error
			if s.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true)); err != nil {
				return 0, err
			}
		}
		out, err := s.zstd.DecodeAll(packed, plain[:0:len(plain)])
		return copy(plain, out), err
	case format.Lz4Raw:
		return lz4.UncompressBlock(packed, plain)
	}
	return 0, errPacked
}

// plainPages shows the Parquet library a column of a row group whose pages are not packed, and whose truth values are plain bits.
type plainPages struct {
	in      *bufio.Reader
	left    int64 // bytes of the pages that are not read yet
	codec   format.CompressionCodec
	column  *parquet.Column
	scratch *scratch
	page    int
	at      int64     // where the library reads on
	ready   [2][]byte // a page's header and its body, as far as they are not handed on
}

// plain reports pages that the library can read as they are.
func plain(codec format.CompressionCodec, c *parquet.Column) bool {
	return codec == format.Uncompressed && c.Type().Kind() != parquet.Boolean
}

func newPlainPages(at io.ReaderAt, first, size int64, codec format.CompressionCodec, c *parquet.Column, s *scratch) *plainPages {
	return &plainPages{in: bufio.NewReaderSize(io.NewSectionReader(at, first, size), 4<<10), left: size, codec: codec, column: c, scratch: s, at: first}
}

// ReadAt is called by the library with rising places only. It ends with a page, without an error, so that the library's buffer never
// has a part of the next one: its reader takes that as it takes it from an io.Reader.
func (p *plainPages) ReadAt(b []byte, off int64) (int, error) {
	if off != p.at {
		return 0, errors.New("its dictionary is missing")
	}
	if len(p.ready[0])+len(p.ready[1]) == 0 {
		if p.left == 0 {
			return 0, io.EOF
		}
		if err := p.next(); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, fmt.Errorf("page %d: %w", p.page, err)
		}
		p.page++
	}
	n := 0
	for i, ready := range p.ready {
		taken := copy(b[n:], ready)
		p.ready[i] = ready[taken:]
		n += taken
	}
	p.at += int64(n)
	return n, nil
}

// Read is for the header's decoder, which takes no more than it needs.
func (p *plainPages) Read(b []byte) (int, error) {
	n, err := p.in.Read(b)
	p.left -= int64(n)
	return n, err
}

// ReadByte is the same.
func (p *plainPages) ReadByte() (byte, error) {
	b, err := p.in.ReadByte()
	if err == nil {
		p.left--
	}
	return b, err
}

// next reads a page, whose sizes were found to be right.
func (p *plainPages) next() error {
	var protocol thrift.CompactProtocol
	var h format.PageHeader
	if err := thrift.NewDecoder(protocol.NewReader(p)).Decode(&h); err != nil {
		return err
	}
	if h.CompressedPageSize < 0 || h.UncompressedPageSize < 0 || int64(h.CompressedPageSize) > p.left {
		return io.ErrUnexpectedEOF
	}
	packed := room(&p.scratch.packed, int(h.CompressedPageSize))
	if _, err := io.ReadFull(p, packed); err != nil {
		return err
	}
	if h.CRC != 0 && uint32(h.CRC) != crc32.ChecksumIEEE(packed) {
		return errors.New("its checksum differs from its bytes")
	}
	body := room(&p.scratch.plain, int(h.UncompressedPageSize))
	levels, codec := 0, p.codec
	if h.Type == format.DataPageV2 {
		v2 := &h.DataPageHeaderV2.V
		levels = int(v2.RepetitionLevelsByteLength) + int(v2.DefinitionLevelsByteLength)
		if min(v2.RepetitionLevelsByteLength, v2.DefinitionLevelsByteLength) < 0 || levels > min(len(packed), len(body)) {
			return fmt.Errorf("its levels have %d bytes, the page has %d, and %d unpacked", levels, len(packed), len(body))
		}
		if v2.IsCompressed.Valid && !v2.IsCompressed.V {
			codec = format.Uncompressed
		}
		v2.IsCompressed.Valid, v2.IsCompressed.V = true, false
	}
	copy(body, packed[:levels])
	if err := p.scratch.unpack(codec, packed[levels:], body[levels:]); err != nil {
		return err
	}
	if p.column.Type().Kind() == parquet.Boolean {
		var err error
		if body, err = p.plainBits(&h, body, levels); err != nil {
			return err
		}
	}
	return p.show(&h, body)
}

// show makes the page ready for the library.
func (p *plainPages) show(h *format.PageHeader, body []byte) error {
	h.CompressedPageSize, h.UncompressedPageSize, h.CRC = int32(len(body)), int32(len(body)), 0
	h.DataPageHeader.V.Statistics, h.DataPageHeaderV2.V.Statistics = format.Statistics{}, format.Statistics{}
	p.scratch.head.Reset()
	var protocol thrift.CompactProtocol
	if err := thrift.NewEncoder(protocol.NewWriter(&p.scratch.head)).Encode(h); err != nil {
		return err
	}
	p.ready = [2][]byte{p.scratch.head.Bytes(), body}
	return nil
}

// plainBits writes runs of truth values as bits: the library takes each run for as many values as whole bytes have. Levels are the bytes
// in front of the values in pages of version 2.
func (p *plainPages) plainBits(h *format.PageHeader, body []byte, levels int) ([]byte, error) {
	values := int(h.DataPageHeaderV2.V.NumValues)
	there := values - int(h.DataPageHeaderV2.V.NumNulls)
	encoding := &h.DataPageHeaderV2.V.Encoding
	switch h.Type {
	case format.DataPage:
		encoding, values = &h.DataPageHeader.V.Encoding, int(h.DataPageHeader.V.NumValues)
	case format.DataPageV2:
	default:
		return body, nil
	}
	if *encoding != format.RLE {
		return body, nil
	}
	if h.Type == format.DataPage {
		var err error
		if levels, there, err = p.levels(body, values); err != nil {
			return nil, err
		}
	}
	if there < 0 || there > values || values > maxPageValues {
		return nil, fmt.Errorf("%d of %d values are there", there, values)
	}
	out := room(&p.scratch.bits, levels+(there+7)/8)
	copy(out, body[:levels])
	clear(out[levels:])
	*encoding = format.Plain
	runs := body[levels:]
	if there == 0 {
		return out, nil
	}
	if len(runs) < 4 || uint64(binary.LittleEndian.Uint32(runs)) > uint64(len(runs)-4) {
		return nil, io.ErrUnexpectedEOF
	}
	n := 0
	err := eachRun(runs[4:4+binary.LittleEndian.Uint32(runs)], 1, there, func(v uint64, count int) {
		for i := n; v != 0 && i < n+count; i++ {
			out[levels+i/8] |= 1 << (i % 8)
		}
		n += count
	})
	return out, err
}

// levels finds, in a page of version 1 with so many values, how many bytes its levels take and how many values are there.
func (p *plainPages) levels(body []byte, values int) (size, there int, err error) {
	there = values
	for i, most := range []int{p.column.MaxRepetitionLevel(), p.column.MaxDefinitionLevel()} {
		if most == 0 {
			continue
		}
		rest := body[size:]
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return 0, 0, io.ErrUnexpectedEOF
		}
		runs := rest[4 : 4+binary.LittleEndian.Uint32(rest)]
		size += 4 + len(runs)
		if i == 0 {
			continue
		}
		there = 0
		err = eachRun(runs, bits.Len(uint(most)), values, func(v uint64, count int) {
			if v == uint64(most) {
				there += count
			}
		})
	}
	return size, there, err
}

// eachRun goes over numbers of so many bits in Parquet's hybrid of runs and packed bits, until there were n of them.
func eachRun(b []byte, width, n int, do func(v uint64, count int)) error {
	mask := uint64(1)<<width - 1
	for n > 0 {
		head, size := binary.Uvarint(b)
		if size <= 0 {
			return fmt.Errorf("it ends %d values early", n)
		}
		b = b[size:]
		if head&1 == 0 { // a run
			bytes := (width + 7) / 8
			if len(b) < bytes {
				return io.ErrUnexpectedEOF
			}
			var le [8]byte
			copy(le[:], b[:bytes])
			count := int(min(head>>1, uint64(n)))
			do(binary.LittleEndian.Uint64(le[:])&mask, count)
			b, n = b[bytes:], n-count
			continue
		}
		groups := head >> 1 // of eight
		if groups > uint64(len(b)/width) {
			return io.ErrUnexpectedEOF
		}
		for i := 0; i < int(groups)*8 && n > 0; i, n = i+1, n-1 {
			v := uint64(0)
			for bit := range width {
				at := i*width + bit
				v |= uint64(b[at/8]>>(at%8)&1) << bit
			}
			do(v, 1)
		}
		b = b[int(groups)*width:]
	}
	return nil
}
