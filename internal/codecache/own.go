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

	"github.com/wherry-fabric/wherry/internal/flock"
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
		return nil, used, fmt.Errorf("%w: %d bytes, want at most %d", errDamaged, info.Size(), most)
	}
	b = make([]byte, info.Size())
	_, err = io.ReadFull(f, b)
	return b, info.ModTime(), err
}

// errDamaged says that a file is not as long as it was made.
var errDamaged = errors.New("it is damaged")

// readOrMakeSecret gives the key of a directory's checksums, which is made with the directory; without it no file can be made that is believed. One that is
// damaged is made anew, and so is what was signed with it, once it is looked for.
func (c *Cache) readOrMakeSecret() ([]byte, error) {
	path := filepath.Join(c.dir, secretName)
	for {
		key, err := readSecret(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err = makeSecret(c.dir, path, os.Link); errors.Is(err, fs.ErrExist) { // another process was first
				err = nil
			}
		case errors.Is(err, errDamaged):
			c.log.Warn(c.kind.Log+": the secret of the code cache is damaged; it is made anew, and so is the code that is kept there", "file", path, "err", err)
			err = mendSecret(c.dir, path)
		default:
			return key, err
		}
		if err != nil {
			return nil, err
		}
	}
}

func readSecret(path string) ([]byte, error) {
	key, _, err := readOwn(path, secretBytes)
	if err == nil && len(key) != secretBytes {
		err = fmt.Errorf("%w: %d bytes, want %d", errDamaged, len(key), secretBytes)
	}
	return key, err
}

// lockTime bounds the wait for another process that mends the same secret, which takes it some milliseconds.
const lockTime = 10 * time.Second

// mendSecret puts another secret in the place of a damaged one. It holds a lock of the directory meanwhile: of two processes that start at once, the
// second would replace the secret that the first has begun to use.
func mendSecret(dir, path string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // and gives the lock back
	if err := flock.Lock(d, lockTime); err != nil && !errors.Is(err, syscall.ENOTSUP) && !errors.Is(err, syscall.ENOSYS) {
		return err
	}
	if _, err := readSecret(path); !errors.Is(err, errDamaged) {
		return nil // it was mended meanwhile; or else the caller reads why not
	}
	return makeSecret(dir, path, os.Rename)
}

// makeSecret writes a secret down to the disk before place gives it its name: one cut short by a power loss would be in the way.
func makeSecret(dir, path string, place func(from, to string) error) error {
	f, err := os.CreateTemp(dir, tempPattern)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	key := make([]byte, secretBytes)
	rand.Read(key)
	_, err = f.Write(key)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = place(f.Name(), path) // all of it at once
	}
	return err
}
