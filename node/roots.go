package node

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
)

// roots are the directories that files may be loaded from. os.Root resolves
// paths below an open directory, step by step, so that neither ".." nor a symbolic link
// leads out of it, not even one that is changed meanwhile.
type roots struct {
	list []*os.Root
}

func openRoots(dirs []string) (*roots, error) {
	r := &roots{}
	for _, dir := range dirs {
		root, err := os.OpenRoot(filepath.Clean(dir))
		if err != nil {
			r.close()
			return nil, fmt.Errorf("data root: %w", err)
		}
		r.list = append(r.list, root)
	}
	return r, nil
}

func (r *roots) close() {
	for _, root := range r.list {
		root.Close()
	}
}

// find opens a regular file below one of the roots: an absolute path below the
// root that it names, a relative one below the first that has it.
func (r *roots) find(path string) (*rootFile, error) {
	if len(r.list) == 0 {
		return nil, fmt.Errorf("%w: this node has no data roots, so it loads no files of its own; set data_roots in its configuration", control.ErrPath)
	}
	if path == "" || strings.IndexByte(path, 0) >= 0 {
		return nil, fmt.Errorf("%w: %q is not a path", control.ErrPath, path)
	}
	var first error
	for _, root := range r.list {
		rel := filepath.Clean(path)
		if filepath.IsAbs(rel) {
			var err error
			if rel, err = filepath.Rel(root.Name(), rel); err != nil {
				continue
			}
		}
		if !filepath.IsLocal(rel) {
			continue
		}
		f := &rootFile{root: root, rel: rel, name: path, gz: strings.HasSuffix(strings.ToLower(path), ".gz")}
		err := f.look()
		if err == nil {
			return f, nil
		}
		if first == nil || errors.Is(first, fs.ErrNotExist) {
			first = err
		}
	}
	if first != nil {
		return nil, first
	}
	return nil, fmt.Errorf("%w: %s is outside of the data roots (%s)", control.ErrPath, path, r.names())
}

func (r *roots) names() string {
	var names []string
	for _, root := range r.list {
		names = append(names, root.Name())
	}
	return strings.Join(names, ", ")
}

// rootFile is a dataset.Input below a root.
type rootFile struct {
	root *os.Root
	rel  string
	name string // as the client wrote it
	gz   bool

	info os.FileInfo
}

func (f *rootFile) open() (*os.File, os.FileInfo, error) {
	file, err := f.root.OpenFile(f.rel, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not block here
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", control.ErrPath, f.name, unwrapPath(err))
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("%w: %s: %w", control.ErrPath, f.name, unwrapPath(err))
	}
	return file, info, nil
}

// unwrapPath drops the operation and path that os puts into its errors.
func unwrapPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (f *rootFile) look() error {
	file, info, err := f.open()
	if err != nil {
		return err
	}
	f.info = info
	return file.Close()
}

// Name is the path as the client wrote it.
func (f *rootFile) Name() string { return f.name }

// Size is the file's length.
func (f *rootFile) Size() int64 { return f.info.Size() }

// Open starts at the beginning of the file that was found first.
func (f *rootFile) Open() (dataset.Stream, error) {
	file, info, err := f.open()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(info, f.info) || info.Size() != f.info.Size() || !info.ModTime().Equal(f.info.ModTime()) {
		file.Close()
		return nil, fmt.Errorf("%w: %s: load it again", dataset.ErrChanged, f.name)
	}
	s := &fileStream{file: file}
	if f.gz {
		if s.unzip, err = gzip.NewReader(readerFunc(s.read)); err != nil {
			file.Close()
			return nil, fmt.Errorf("%w: %s: %w", dataset.ErrInput, f.name, err)
		}
	}
	return s, nil
}

// fileStream counts what is read of the file.
type fileStream struct {
	file  *os.File
	unzip io.Reader
	done  int64
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func (s *fileStream) read(p []byte) (int, error) {
	n, err := s.file.Read(p)
	s.done += int64(n)
	return n, err
}

// Read reads the file's text.
func (s *fileStream) Read(p []byte) (int, error) {
	if s.unzip != nil {
		return s.unzip.Read(p)
	}
	return s.read(p)
}

// Done is how much of Size was read.
func (s *fileStream) Done() int64 { return s.done }

// Close closes the file.
func (s *fileStream) Close() error { return s.file.Close() }
