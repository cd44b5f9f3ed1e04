package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Input is bytes that can be read more than once.
type Input interface {
	// Name is for messages.
	Name() string
	// Size is the bytes there are to read, as Stream.Done counts them; -1 if it is not known.
	Size() int64
	// Open starts at the beginning. Every Open reads the same bytes, or fails
	// with ErrChanged.
	Open() (Stream, error)
}

// Stream is one reading of an Input.
type Stream interface {
	io.ReadCloser
	// Done is how much of Size was read.
	Done() int64
}

// plainSizer is an Input whose Size is what a reader gets.
type plainSizer interface{ plainSize() (int64, bool) }

// File is an Input on a disk. A name that ends in .gz or .zst is decompressed.
type File struct {
	name   string
	open   func() (*os.File, error)
	packed compression
	info   os.FileInfo
}

// OpenFile looks at a regular file. It is opened anew by every reading, which
// fails if the file was changed or exchanged.
func OpenFile(path string) (*File, error) {
	f, err := NewFile(path, func() (*os.File, error) { return os.OpenFile(path, ReadFlags, 0) })
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, path, err)
	}
	return f, nil
}

// ReadFlags open a file to be read, and do not wait where it is a pipe.
const ReadFlags = os.O_RDONLY | syscall.O_NONBLOCK

// NewFile is OpenFile for a file that is opened in another way, with ReadFlags; name is for
// messages. Its errors have neither name nor kind.
func NewFile(name string, open func() (*os.File, error)) (*File, error) {
	f := &File{name: name, open: open}
	f.packed, _ = compressionOf(name)
	file, info, err := f.look()
	if err != nil {
		return nil, err
	}
	f.info = info
	return f, file.Close()
}

// look opens the file as it is now.
func (f *File) look() (*os.File, os.FileInfo, error) {
	file, err := f.open()
	if err != nil {
		return nil, nil, bare(err)
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = errors.New("it is a folder: name a file in it")
	} else if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is a pipe or a device, which cannot be opened again from its beginning, as a load may have to: copy it to a file, or give it to standard input and name - as the file")
	}
	if err != nil {
		file.Close()
		return nil, nil, bare(err)
	}
	return file, info, nil
}

// bare drops the operation and path that os puts into its errors.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Name is the name it was given.
func (f *File) Name() string { return f.name }

// Size is the file's length on disk.
func (f *File) Size() int64 { return f.info.Size() }

func (f *File) plainSize() (int64, bool) { return f.Size(), f.packed == "" }

// Open starts at the beginning of the file that was found first.
func (f *File) Open() (Stream, error) {
	file, info, err := f.look()
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, f.name, err)
	}
	if !os.SameFile(info, f.info) || info.Size() != f.info.Size() || !info.ModTime().Equal(f.info.ModTime()) {
		file.Close()
		return nil, fmt.Errorf("%w: %s: load it again", ErrChanged, f.name)
	}
	s := &stream{raw: file, close: file.Close}
	if f.packed != "" {
		if err := s.unpack(f.packed); err != nil {
			file.Close()
			return nil, fmt.Errorf("%w: %s: %w", ErrInput, f.name, err)
		}
	}
	return s, nil
}

// stream counts what is read of raw.
type stream struct {
	raw   io.Reader
	plain io.Reader // nil if raw is not compressed
	done  int64
	close func() error
}

type countedReader struct{ s *stream }

func (c countedReader) Read(p []byte) (int, error) {
	n, err := c.s.raw.Read(p)
	c.s.done += int64(n)
	return n, err
}

func (s *stream) Read(p []byte) (int, error) {
	if s.plain != nil {
		return s.plain.Read(p)
	}
	return countedReader{s}.Read(p)
}

func (s *stream) Done() int64 { return s.done }

func (s *stream) Close() error { return s.close() }

// Text is an Input in memory.
type Text struct {
	name string
	data []byte
}

// NewText makes an Input of data, which must not change.
func NewText(name string, data []byte) *Text { return &Text{name, data} }

// Name is the name it was given.
func (t *Text) Name() string { return t.name }

// Size is its length.
func (t *Text) Size() int64 { return int64(len(t.data)) }

func (t *Text) plainSize() (int64, bool) { return t.Size(), true }

// Open starts at the beginning.
func (t *Text) Open() (Stream, error) {
	return &stream{raw: bytes.NewReader(t.data), close: func() error { return nil }}, nil
}

// DefaultSpoolBytes bounds a spool for which no limit is given: what a disk for
// temporary files often has; a smaller one says itself that it is full.
const DefaultSpoolBytes = 64 << 30

// Spool is an Input that was copied from a reader to a file without a name.
type Spool struct {
	name   string
	file   *os.File
	size   int64
	packed compression
}

// NewSpool copies r (a pipe, standard input) to a file in dir ("" is the
// system's directory for them), which takes as much disk as r has bytes, at most
// limit (DefaultSpoolBytes if that is not positive). The file has no name, so nothing is left even if the process is killed.
func NewSpool(ctx context.Context, name string, r io.Reader, dir string, limit int64, progress Progress) (*Spool, error) {
	if limit <= 0 {
		limit = DefaultSpoolBytes
	}
	file, err := os.CreateTemp(dir, "wherry-spool-")
	if err != nil {
		return nil, fmt.Errorf("dataset: spool: %w", err)
	}
	s := &Spool{name: name, file: file}
	if err := os.Remove(file.Name()); err != nil {
		file.Close()
		return nil, fmt.Errorf("dataset: spool: %w", err)
	}
	disk := &keeper{w: file}
	tracked := &trackedReader{ctx: ctx, r: &stream{raw: io.LimitReader(r, limit+1)}, phase: PhaseSpool, total: -1, progress: progress}
	s.size, err = io.CopyBuffer(disk, tracked, make([]byte, readBytes))
	if disk.err != nil { // the input is not to blame
		file.Close()
		return nil, fmt.Errorf("dataset: %s is kept in %s while it is read, and it cannot be written there: %w: make room, set TMPDIR to another folder, or load a file",
			name, filepath.Dir(file.Name()), disk.err)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%w: %s: spool in %s: %w", ErrInput, name, filepath.Dir(file.Name()), err)
	}
	if s.size > limit {
		file.Close()
		return nil, fmt.Errorf("%w: %s has more than the %d bytes that may be spooled; load it from a file", ErrTooLarge, name, limit)
	}
	return s, nil
}

// keeper remembers why nothing more could be written.
type keeper struct {
	w   io.Writer
	err error
}

func (k *keeper) Write(p []byte) (n int, err error) {
	n, k.err = k.w.Write(p)
	if path := (*fs.PathError)(nil); errors.As(k.err, &path) {
		k.err = path.Err // the file has no name
	}
	return n, k.err
}

// Name is the name it was given.
func (s *Spool) Name() string { return s.name }

// Size is its length.
func (s *Spool) Size() int64 { return s.size }

func (s *Spool) plainSize() (int64, bool) { return s.size, s.packed == "" }

// Unpack has readings decompress what begins as gzip or zstd does: a pipe has no name that says so. No file of a format but raw begins like that.
func (s *Spool) Unpack() error {
	var begin [4]byte
	n, err := s.file.ReadAt(begin[:], 0)
	if err != nil && err != io.EOF {
		return fmt.Errorf("dataset: spool: %w", err)
	}
	s.packed = compressionIn(begin[:n])
	return nil
}

// Open starts at the beginning.
func (s *Spool) Open() (Stream, error) {
	st := &stream{raw: io.NewSectionReader(s.file, 0, s.size), close: func() error { return nil }}
	if s.packed != "" {
		if err := st.unpack(s.packed); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrInput, s.name, err)
		}
	}
	return st, nil
}

// Close frees the disk. No stream may be in use.
func (s *Spool) Close() error { return s.file.Close() }

// readBytes is how much is read at once: the step in which progress is shown
// and a context is looked at.
const readBytes = 1 << 20

// trackedReader stops when its context ends and reports progress.
type trackedReader struct {
	ctx      context.Context
	r        Stream
	phase    Phase
	before   int64 // bytes done by earlier readings of the same phase
	total    int64
	progress Progress
}

func (t *trackedReader) Read(p []byte) (int, error) {
	if err := context.Cause(t.ctx); err != nil {
		return 0, err
	}
	n, err := t.r.Read(p)
	if t.progress != nil {
		t.progress(t.phase, t.before+t.r.Done(), t.total)
	}
	return n, err
}
