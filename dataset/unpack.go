package dataset

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// compression is how a file is compressed, as its name ends; "" if it is not.
type compression string

const (
	gzipped   compression = ".gz"
	zstandard compression = ".zst"
)

// maxZstdWindow bounds what decompressing zstd takes: zstd --long has 128 MiB, all its levels have less.
const maxZstdWindow = 128 << 20

// compressionOf takes the end off a name, in small letters, that says how the file is compressed.
func compressionOf(name string) (compression, string) {
	name = strings.ToLower(name)
	for _, c := range []compression{gzipped, zstandard} {
		if rest, ok := strings.CutSuffix(name, string(c)); ok {
			return c, rest
		}
	}
	return "", name
}

// compressionIn tells it by a file's first bytes.
func compressionIn(begin []byte) compression {
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b, 8}): // RFC 1952, deflate
		return gzipped
	case bytes.HasPrefix(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}): // RFC 8878
		return zstandard
	}
	return ""
}

// unpack has s read what its file has compressed. Both kinds are unpacked piece by piece, as it is read: however much a file stands for, it
// takes no more memory than a window.
func (s *stream) unpack(c compression) error {
	if c == gzipped {
		z, err := gzip.NewReader(bufio.NewReader(countedReader{s}))
		if errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("it is not compressed with gzip, as the .gz in its name says: rename it, or compress it")
		}
		if err == nil {
			s.plain = gzipReader{z}
		}
		return err
	}
	z, err := zstd.NewReader(countedReader{s}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	closeFile := s.close
	s.close = func() error {
		z.Close()
		return closeFile()
	}
	s.plain = zstdReader{z}
	return nil
}

// gzipReader words errors.
type gzipReader struct{ z *gzip.Reader }

func (r gzipReader) Read(p []byte) (int, error) {
	n, err := r.z.Read(p)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it is cut off: its gzip data has no end: copy or compress it again")
	case errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.As(err, new(flate.CorruptInputError)):
		err = fmt.Errorf("its gzip data is damaged: copy or compress it again: %w", err)
	}
	return n, err
}

// zstdDamage are errors of what zstd data is, as against those of reading it.
var zstdDamage = []error{zstd.ErrReservedBlockType, zstd.ErrCompressedSizeTooBig, zstd.ErrBlockTooSmall, zstd.ErrUnexpectedBlockSize, zstd.ErrWindowSizeTooSmall,
	zstd.ErrFrameSizeExceeded, zstd.ErrFrameSizeMismatch, zstd.ErrCRCMismatch}

// zstdReader words errors.
type zstdReader struct{ z *zstd.Decoder }

func (r zstdReader) Read(p []byte) (int, error) {
	n, err := r.z.Read(p)
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case errors.Is(err, zstd.ErrMagicMismatch):
		err = errors.New("it is not compressed with zstd, as the .zst in its name says: rename it, or compress it")
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		err = fmt.Errorf("its zstd window is larger than %d MiB: compress it again without --ultra --long=31", maxZstdWindow>>20)
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it is cut off: its last zstd frame is not whole")
	case errors.Is(err, zstd.ErrUnknownDictionary):
		err = errors.New("its zstd data was compressed with a dictionary, or is damaged: compress it again, without -D")
	case slices.ContainsFunc(zstdDamage, func(e error) bool { return errors.Is(err, e) }):
		err = fmt.Errorf("its zstd data is damaged: copy or compress it again: %w", err)
	}
	return n, err
}
