package dataset

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

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
	packed, plain, levels, values, runs []byte
	shared                              []int32 // bytes that values have from the one before
	head                                bytes.Buffer
	gzip                                gzip.Reader
	zstd                                *zstd.Decoder
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

// plainPages shows the Parquet library a column of a row group whose pages are not packed, whose truth values are plain bits, and whose
// values are as many as its levels say.
type plainPages struct {
	in         *bufio.Reader
	left       int64 // bytes of the pages that are not read yet
	codec      format.CompressionCodec
	column     *parquet.Column
	scratch    *scratch
	most       int64 // bytes that a page may have
	page       int
	dictionary int       // its values; negative without one
	at         int64     // where the library reads on
	ready      [3][]byte // a page's header, its levels and its values, as far as they are not handed on
}

// ReadAt is called by the library with rising places only. It ends with a page, without an error, so that the library's buffer never
// has a part of the next one: its reader takes that as it takes it from an io.Reader.
func (p *plainPages) ReadAt(b []byte, off int64) (int, error) {
	if off != p.at {
		return 0, errors.New("its dictionary is missing")
	}
	for len(p.ready[0])+len(p.ready[1])+len(p.ready[2]) == 0 {
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
	return p.show(&h, body)
}

// show makes the page ready for the library, if there are values.
func (p *plainPages) show(h *format.PageHeader, body []byte) (err error) {
	var levels []byte
	switch h.Type {
	case format.DictionaryPage:
		body, err = p.dictionaryPage(&h.DictionaryPageHeader.V, body)
	case format.DataPage, format.DataPageV2:
		levels, body, err = p.dataPage(h, body)
		if err == nil && len(levels)+len(body) == 0 {
			return nil
		}
	default:
		err = fmt.Errorf("it is of type %v", h.Type)
	}
	if err != nil {
		return err
	}
	size := int32(len(levels) + len(body))
	h.CompressedPageSize, h.UncompressedPageSize, h.CRC = size, size, 0
	h.DataPageHeader.V.Statistics, h.DataPageHeaderV2.V.Statistics = format.Statistics{}, format.Statistics{}
	p.scratch.head.Reset()
	var protocol thrift.CompactProtocol
	if err := thrift.NewEncoder(protocol.NewWriter(&p.scratch.head)).Encode(h); err != nil {
		return err
	}
	p.ready = [3][]byte{p.scratch.head.Bytes(), levels, body}
	return nil
}
