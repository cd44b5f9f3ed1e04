package seams

import "os"

// File is a backing in a file: others reach it by the file's own reads and writes.
type File struct{ *os.File }

// OpenFile makes one of size bytes, without a name.
func OpenFile(dir string, size uint64) (File, error) {
	f, err := os.CreateTemp(dir, "segment")
	if err != nil {
		return File{}, err
	}
	os.Remove(f.Name())
	if err := f.Truncate(int64(size)); err != nil {
		f.Close()
		return File{}, err
	}
	return File{f}, nil
}

func (f File) Bytes() []byte    { return nil }
func (f File) FD() (int, int64) { return -1, 0 }

func (f File) ReadAt(p []byte, off uint64) error {
	_, err := f.File.ReadAt(p, int64(off))
	return err
}

func (f File) WriteAt(p []byte, off uint64) error {
	_, err := f.File.WriteAt(p, int64(off))
	return err
}
