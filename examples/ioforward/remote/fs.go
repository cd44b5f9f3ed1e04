package remote

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// FS is the node's directory as a Go file system: for reading, with package fs's
// rules for names. It implements fs.ReadDirFS, fs.StatFS, fs.ReadFileFS and fs.ReadLinkFS.
type FS struct{ c *Client }

// FS makes a file system of the client.
func (c *Client) FS() FS { return FS{c} }

func checkName(op, name string) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

// Open implements fs.FS; the file is a *File.
func (s FS) Open(name string) (fs.File, error) {
	if err := checkName("open", name); err != nil {
		return nil, err
	}
	f, err := s.c.OpenFile(s.c.life, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Stat implements fs.StatFS.
func (s FS) Stat(name string) (fs.FileInfo, error) {
	if err := checkName("stat", name); err != nil {
		return nil, err
	}
	return orNil(s.c.Stat(s.c.life, name))
}

// Lstat implements fs.ReadLinkFS.
func (s FS) Lstat(name string) (fs.FileInfo, error) {
	if err := checkName("lstat", name); err != nil {
		return nil, err
	}
	return orNil(s.c.Lstat(s.c.life, name))
}

func orNil(i Info, err error) (fs.FileInfo, error) {
	if err != nil {
		return nil, err
	}
	return i, nil
}

// ReadLink implements fs.ReadLinkFS.
func (s FS) ReadLink(name string) (string, error) {
	if err := checkName("readlink", name); err != nil {
		return "", err
	}
	return s.c.Readlink(s.c.life, name)
}

// ReadDir implements fs.ReadDirFS.
func (s FS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := checkName("readdir", name); err != nil {
		return nil, err
	}
	return s.c.ReadDir(s.c.life, name)
}

// ReadFile implements fs.ReadFileFS.
func (s FS) ReadFile(name string) ([]byte, error) {
	if err := checkName("readfile", name); err != nil {
		return nil, err
	}
	f, err := s.c.OpenFile(s.c.life, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	a, err := f.Attr(s.c.life)
	if err != nil {
		return nil, err
	}
	return readAll(f, a.Size)
}

// readAll reads to the end, for which size is a good guess and no promise.
func readAll(f *File, size int64) ([]byte, error) {
	const step = 1 << 20
	data := make([]byte, 0, min(size, 64*step)+1)
	for {
		if len(data) == cap(data) {
			data = append(data, make([]byte, step)...)[:len(data)]
		}
		n, err := f.ReadAt(data[len(data):cap(data)], int64(len(data)))
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
