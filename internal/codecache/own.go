package codecache

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ErrShared says that others could put code into a directory, or already have: what is there would run as this user.
var ErrShared = errors.New("others could put machine code there")

const (
	secretName  = "secret"
	secretBytes = 32
)

// Check refuses a directory that others can change. One with the sticky bit, as /tmp has it, they can only add to: what they add
// is not this user's, and is not read.
func Check(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	if perm := info.Mode().Perm(); perm&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("%w: %s has mode %04o: chmod go-w %s, and remove what is in it", ErrShared, dir, perm, dir)
	}
	return owned(dir, info)
}

// owned refuses what belongs to another user.
func owned(path string, info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s does not belong to the user this runs as (uid %d): chown it, or remove it", ErrShared, path, os.Geteuid())
	}
	return nil
}

// readOwn reads a file of this user's that no other can write to, of at most so many bytes, and says when it was written or used.
func readOwn(path string, most int64) (b []byte, used time.Time, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) // a FIFO would have it wait
	if err != nil {
		return nil, used, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, used, err
	}
	if perm := info.Mode().Perm(); !info.Mode().IsRegular() || perm&0o022 != 0 {
		return nil, used, fmt.Errorf("%w: %s is no plain file that only its owner can write to (%v): remove it", ErrShared, path, info.Mode())
	}
	if err := owned(path, info); err != nil {
		return nil, used, err
	}
	if info.Size() > most {
		return nil, used, fmt.Errorf("%d bytes are too many", info.Size())
	}
	b = make([]byte, info.Size())
	_, err = io.ReadFull(f, b)
	return b, info.ModTime(), err
}

// secret is the key of a directory's checksums, which is made with the directory; without it no file can be made that is believed.
func secret(dir string) ([]byte, error) {
	path := filepath.Join(dir, secretName)
	for {
		key, _, err := readOwn(path, secretBytes)
		switch {
		case err == nil && len(key) == secretBytes:
			return key, nil
		case err == nil:
			return nil, fmt.Errorf("%s has %d bytes, want %d: remove it, and what is cached is made again", path, len(key), secretBytes)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		if err := makeSecret(dir, path); err != nil && !errors.Is(err, fs.ErrExist) { // another process was first
			return nil, err
		}
	}
}

func makeSecret(dir, path string) error {
	f, err := os.CreateTemp(dir, tempPattern)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	key := make([]byte, secretBytes)
	rand.Read(key)
	_, err = f.Write(key)
	if err == nil {
		err = f.Sync() // once in a directory's life: one cut short by a power loss would be in the way of every start
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Link(f.Name(), path) // all of it at once, and never in place of another
	}
	return err
}
