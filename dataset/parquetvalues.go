package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// The Parquet library decodes values into buffers that other pages had, and goes by their capacity: a page with fewer values than its header
// says gets those of another page. It makes room for each run of a page, and for what values share, before it looks how many there can be.
// So each page is walked here, and the library is shown one that has exactly the values that its levels say.

// errOldLevels refuses levels that only programs of before 2014 write.
var errOldLevels = errors.New("its levels are encoded as BIT_PACKED, as old programs wrote them: read and write the file again with a newer program, such as pyarrow")

// maxIndexBits bounds the numbers that point into a dictionary.
const maxIndexBits = 32

// dictionaryPage checks the values that others of the column point to.
func (p *plainPages) dictionaryPage(h *format.DictionaryPageHeader, body []byte) (values []byte, err error) {
	switch {
	case p.dictionary >= 0:
		return nil, errors.New("it is a second dictionary")
	case h.Encoding != format.Plain && h.Encoding != format.PlainDictionary:
		return nil, fmt.Errorf("it is a dictionary encoded as %v", h.Encoding)
	}
	p.dictionary = int(h.NumValues)
	return plainValues(p.column.Type(), body, p.dictionary)
}

// dataPage checks a page's levels and values, and returns both as the library is to see them. A page without values becomes empty.
func (p *plainPages) dataPage(h *format.PageHeader, body []byte) (levels, values []byte, err error) {
	encoding, n := &h.DataPageHeader.V.Encoding, int(h.DataPageHeader.V.NumValues)
	if h.Type == format.DataPageV2 {
		encoding, n = &h.DataPageHeaderV2.V.Encoding, int(h.DataPageHeaderV2.V.NumValues)
	}
	if n <= 0 || n > maxPageValues {
		if n == 0 {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("it has %d values", n)
	}
	levels, body, there, err := p.levels(h, body, n)
	if err != nil {
		return nil, nil, fmt.Errorf("its levels are damaged: %w", err)
	}
	if h.Type == format.DataPageV2 {
		h.DataPageHeaderV2.V.NumNulls = int32(n - there)
	}
	if there == 0 {
		*encoding = format.Plain
		return levels, nil, nil
	}
	if values, err = p.values(encoding, body, there); err != nil {
		return nil, nil, fmt.Errorf("its %d values, encoded as %v: %w", there, *encoding, err)
	}
	return levels, values, nil
}

// levels writes the levels of n values, and finds out how many of the values are there. rest is what follows the levels.
func (p *plainPages) levels(h *format.PageHeader, body []byte, n int) (levels, rest []byte, there int, err error) {
	v2 := &h.DataPageHeaderV2.V
	sizes := []*int32{&v2.RepetitionLevelsByteLength, &v2.DefinitionLevelsByteLength}
	out, rest, there := p.scratch.levels[:0], body, n
	for i, most := range []int{p.column.MaxRepetitionLevel(), p.column.MaxDefinitionLevel()} {
		var runs []byte
		if h.Type == format.DataPageV2 { // whose sizes were found to be right
			runs, rest = rest[:*sizes[i]], rest[*sizes[i]:]
			if *sizes[i] = 0; most == 0 {
				continue
			}
		} else {
			if most == 0 {
				continue
			}
			if runs, rest, err = prefixed(rest); err != nil {
				return nil, nil, 0, err
			}
			out = append(out, 0, 0, 0, 0)
		}
		from, count := len(out), 0
		if out, err = eachRun(out, runs, bits.Len(uint(most)), n, func(v uint64, times int) error {
			if v > uint64(most) {
				return fmt.Errorf("a level is %d, at most %d", v, most)
			}
			if v == uint64(most) {
				count += times
			}
			return nil
		}); err != nil {
			return nil, nil, 0, err
		}
		if i == 1 {
			there = count
		}
		if *sizes[i] = int32(len(out) - from); h.Type == format.DataPage {
			binary.LittleEndian.PutUint32(out[from-4:], uint32(len(out)-from))
		}
	}
	p.scratch.levels = out
	return out, rest, there, nil
}

// prefixed takes bytes that have their number in front.
func prefixed(b []byte) (in, rest []byte, err error) {
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, nil, io.ErrUnexpectedEOF
	}
	end := 4 + int(binary.LittleEndian.Uint32(b))
	return b[4:end], b[end:], nil
}

// values returns n values as the library is to see them.
func (p *plainPages) values(encoding *format.Encoding, b []byte, n int) (_ []byte, err error) {
	typ := p.column.Type()
	kind, width := typ.Kind(), fixedWidth(typ)
	s := p.scratch
	switch *encoding {
	case format.Plain:
		return plainValues(typ, b, n)
	case format.RLEDictionary, format.PlainDictionary:
		s.values, err = p.indices(s.values[:0], b, n)
		return s.values, err
	case format.RLE:
		if kind == parquet.Boolean {
			*encoding = format.Plain
			return s.plainBits(b, n)
		}
	case format.DeltaBinaryPacked:
		if kind == parquet.Int32 || kind == parquet.Int64 {
			_, err = deltas(b, 8*width, n, nil)
			return b, err
		}
	case format.DeltaLengthByteArray:
		if kind == parquet.ByteArray {
			return b, s.lengths(b, n)
		}
	case format.DeltaByteArray:
		if kind == parquet.ByteArray || kind == parquet.FixedLenByteArray {
			return b, s.prefixes(b, width, n, p.most)
		}
	case format.ByteStreamSplit:
		if kind != parquet.Boolean && kind != parquet.ByteArray {
			if len(b) != n*width {
				err = fmt.Errorf("they have %d bytes, not %d", len(b), n*width)
			}
			return b, err
		}
	}
	return nil, fmt.Errorf("no value of type %v is", kind)
}

// fixedWidth is the bytes of a value, 0 of those that vary and of truth values.
func fixedWidth(typ parquet.Type) int {
	switch typ.Kind() {
	case parquet.Int32, parquet.Float:
		return 4
	case parquet.Int64, parquet.Double:
		return 8
	case parquet.Int96:
		return 12
	case parquet.FixedLenByteArray:
		return max(typ.Length(), 0)
	}
	return 0
}

// plainValues are the bytes of n values that stand one after the other.
func plainValues(typ parquet.Type, b []byte, n int) ([]byte, error) {
	size := n * fixedWidth(typ)
	switch typ.Kind() {
	case parquet.Boolean:
		size = (n + 7) / 8
	case parquet.ByteArray:
		rest, err := b, error(nil)
		for i := range n {
			if _, rest, err = prefixed(rest); err != nil {
				return nil, fmt.Errorf("they end %d early: %w", n-i, err)
			}
		}
		size = len(b) - len(rest)
	}
	if size < 0 || size > len(b) {
		return nil, fmt.Errorf("they have %d bytes, not %d", len(b), size)
	}
	return b[:size], nil
}

// indices writes n numbers that point into the dictionary.
func (p *plainPages) indices(out, b []byte, n int) ([]byte, error) {
	switch {
	case p.dictionary < 0:
		return nil, errors.New("their dictionary is missing")
	case len(b) == 0:
		return nil, io.ErrUnexpectedEOF
	case b[0] > maxIndexBits:
		return nil, fmt.Errorf("they point into a dictionary with %d bits, at most %d", b[0], maxIndexBits)
	}
	return eachRun(append(out, b[0]), b[1:], int(b[0]), n, func(v uint64, _ int) error {
		if v >= uint64(p.dictionary) {
			return fmt.Errorf("one points to value %d of a dictionary of %d", v, p.dictionary)
		}
		return nil
	})
}

// plainBits writes runs of n truth values as bits: the library takes each run for as many values as whole bytes have.
func (s *scratch) plainBits(b []byte, n int) ([]byte, error) {
	b, _, err := prefixed(b)
	if err != nil {
		return nil, err
	}
	out := room(&s.values, (n+7)/8)
	clear(out)
	at := 0
	s.runs, err = eachRun(s.runs[:0], b, 1, n, func(v uint64, times int) error {
		if v > 1 {
			return fmt.Errorf("a truth value is %d", v)
		}
		for i := at; v != 0 && i < at+times; i++ {
			out[i/8] |= 1 << (i % 8)
		}
		at += times
		return nil
	})
	return out, err
}

// eachRun goes over n numbers of so many bits in Parquet's hybrid of runs and packed bits, and appends them to out in the same form, with
// nothing behind them. Some programs cut off the last packed bits that are not used.
func eachRun(out, b []byte, width, n int, do func(v uint64, times int) error) ([]byte, error) {
	if width == 0 { // all are 0, whatever the runs say
		return binary.AppendUvarint(out, uint64(n)<<1), do(0, n)
	}
	for n > 0 {
		head, size := binary.Uvarint(b)
		if size <= 0 {
			return out, fmt.Errorf("they end %d early", n)
		}
		b = b[size:]
		if head&1 == 0 { // a run
			size := (width + 7) / 8
			if len(b) < size {
				return out, fmt.Errorf("they end %d early", n)
			}
			if times := int(min(head>>1, uint64(n))); times > 0 {
				out = append(binary.AppendUvarint(out, uint64(times)<<1), b[:size]...)
				if err := do(bitsAt(b[:size], 0, 8*size), times); err != nil {
					return out, err
				}
				n -= times
			}
			b = b[size:]
			continue
		}
		groups := int(min(head>>1, uint64(n+7)/8)) // of eight
		times := min(8*groups, n)
		if (times*width+7)/8 > len(b) {
			return out, fmt.Errorf("they end %d early", n-len(b)*8/width)
		}
		packed := b[:min(groups*width, len(b))]
		if groups > 0 {
			out = append(binary.AppendUvarint(out, uint64(groups)<<1|1), packed...)
			out = append(out, make([]byte, groups*width-len(packed))...)
		}
		for i := range times {
			if err := do(bitsAt(packed, i*width, width), 1); err != nil {
				return out, err
			}
		}
		b, n = b[len(packed):], n-times
	}
	return out, nil
}

// bitsAt is a number of so many bits, at most 64.
func bitsAt(b []byte, at, width int) uint64 {
	shift := at % 8
	if b = b[at/8:]; len(b) < 9 {
		var long [9]byte
		copy(long[:], b)
		b = long[:]
	}
	v := binary.LittleEndian.Uint64(b)>>shift | uint64(b[8])<<(64-shift)
	return v & (1<<width - 1)
}

// maxDeltaBlock is the most that the library reads.
const maxDeltaBlock = 64 << 10

// deltas goes over n numbers of so many bits that are encoded as differences. rest is what follows them.
func deltas(b []byte, width, n int, do func(v int64)) (rest []byte, err error) {
	var head [3]uint64 // the values of a block, its parts, all values
	for i := range head {
		if head[i], b, err = varint(b); err != nil {
			return nil, err
		}
	}
	first, b, err := zigzag(b)
	block, parts, all := head[0], head[1], head[2]
	switch {
	case err != nil:
		return nil, err
	case block == 0 || block > maxDeltaBlock || parts == 0 || parts > block || block%128 != 0 || block/parts%32 != 0:
		return nil, fmt.Errorf("they are in blocks of %d, each of %d parts", block, parts)
	case all != uint64(n):
		return nil, fmt.Errorf("there are %d of them", all)
	}
	sum := first
	if do != nil {
		do(first)
	}
	for left := n - 1; left > 0; {
		var least int64
		if least, b, err = zigzag(b); err != nil || uint64(len(b)) < parts {
			return nil, fmt.Errorf("they end %d early", left)
		}
		widths := b[:parts]
		b = b[parts:]
		for _, w := range widths {
			times := min(int(block/parts), left)
			switch {
			case times == 0:
				continue
			case int(w) > width:
				return nil, fmt.Errorf("a difference has %d bits, at most %d", w, width)
			case (times*int(w)+7)/8 > len(b):
				return nil, fmt.Errorf("they end %d early", left)
			}
			for i := 0; do != nil && i < times; i++ {
				if sum += least + int64(bitsAt(b, i*int(w), int(w))); width == 32 {
					sum = int64(int32(sum))
				}
				do(sum)
			}
			b, left = b[min(int(block/parts)*int(w)/8, len(b)):], left-times
		}
	}
	return b, nil
}

func varint(b []byte) (v uint64, rest []byte, err error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return v, b[n:], nil
}

func zigzag(b []byte) (v int64, rest []byte, err error) {
	v, n := binary.Varint(b)
	if n <= 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return v, b[n:], nil
}

// lengths checks n values that have their lengths in front.
func (s *scratch) lengths(b []byte, n int) error {
	sum, least := int64(0), int64(0)
	rest, err := deltas(b, 32, n, func(v int64) {
		sum, least = sum+v, min(least, v)
	})
	if err == nil && (least < 0 || sum > int64(len(rest))) {
		err = fmt.Errorf("they have %d bytes, one of them has %d, and %d are there", sum, least, len(rest))
	}
	return err
}

// prefixes checks n values each of which begins as the one before; all have so many bytes, if that is not 0. Together they have no more than most.
func (s *scratch) prefixes(b []byte, width, n int, most int64) error {
	s.shared = s.shared[:0]
	b, err := deltas(b, 32, n, func(v int64) { s.shared = append(s.shared, int32(v)) })
	if err != nil {
		return err
	}
	i, before, sum, own, bad := 0, int64(0), int64(0), int64(0), error(nil)
	if b, err = deltas(b, 32, n, func(v int64) {
		shared := int64(s.shared[i])
		size := shared + v
		if shared < 0 || v < 0 || shared > before || width > 0 && size != int64(width) {
			bad = fmt.Errorf("value %d has %d bytes, %d of which are those of the one before, which has %d", i, size, shared, before)
		}
		before, sum, own, i = size, sum+size, own+v, i+1
	}); err != nil {
		return err
	}
	switch {
	case bad != nil:
		return bad
	case own > int64(len(b)):
		return fmt.Errorf("they have %d bytes, and %d are there", own, len(b))
	case sum > most:
		return fmt.Errorf("%w: they unpack to %d MiB, at most %d MiB are read: write the file again with smaller pages", ErrTooLarge, sum>>20, most>>20)
	}
	return nil
}
