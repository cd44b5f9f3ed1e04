package wasm

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/codecache"
)

// stage is the private directory that wazero takes for its cache. It holds one
// compilation's files.
type stage struct {
	dir   string
	inner string   // below dir: made and named by wazero
	lock  *os.File // dir, locked for as long as it is in use
}

const (
	stagePrefix   = "wherry-wasm-"
	stageAttempts = 3
)

// newStage makes the directory, in memory where the machine has such a file
// system (wazero syncs every file it writes), else below fallback.
func newStage(fallback string) (*stage, error) {
	const memory = "/dev/shm"
	s, err := makeStage(memory)
	if err != nil {
		s, err = makeStage(fallback)
	}
	if err != nil {
		return nil, fmt.Errorf("wasm: staging directory: %w", err)
	}
	return s, nil
}

func makeStage(parent string) (*stage, error) {
	sweep(parent)
	for range stageAttempts {
		dir, err := os.MkdirTemp(parent, stagePrefix)
		if err != nil {
			return nil, err
		}
		s := &stage{dir: dir, inner: dir}
		if s.lock, err = tryLock(dir); err != nil {
			os.RemoveAll(dir) // the lock's error says more
			return nil, err
		}
		// Another process may have swept it away before it was locked.
		if _, err := os.Stat(dir); err == nil {
			return s, nil
		}
		s.lock.Close()
	}
	return nil, fmt.Errorf("%s: a new directory vanished %d times", parent, stageAttempts)
}

// tryLock locks a directory for this process, or fails at once. The lock ends with the descriptor, so
// with the process at the latest.
func tryLock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// sweep removes staging directories whose process has ended.
func sweep(parent string) {
	dirs, err := filepath.Glob(filepath.Join(parent, stagePrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if f, err := tryLock(dir); err == nil {
			os.RemoveAll(dir)
			f.Close()
		}
	}
}

// settle finds out where in dir wazero keeps its files.
func (s *stage) settle() error {
	dirs, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	if len(dirs) != 1 || !dirs[0].IsDir() {
		return fmt.Errorf("wasm: staging directory %s: wazero made %d entries, want a directory", s.dir, len(dirs))
	}
	s.inner = filepath.Join(s.dir, dirs[0].Name())
	return nil
}

// put stages an entry, as a file from long ago: what wazero writes is newer by any clock.
func (s *stage) put(e codecache.Entry) error {
	path := filepath.Join(s.inner, e.Name)
	if err := os.WriteFile(path, e.Data, 0o600); err != nil {
		return err
	}
	return os.Chtimes(path, time.Time{}, time.Unix(1, 0))
}

func (s *stage) files() []os.DirEntry {
	files, err := os.ReadDir(s.inner)
	if err != nil {
		return nil
	}
	return files
}

// newest is the file that wazero wrote last.
func (s *stage) newest(files []os.DirEntry) (e codecache.Entry, ok bool) {
	var newest os.FileInfo
	for _, f := range files {
		if info, err := f.Info(); err == nil && (newest == nil || info.ModTime().After(newest.ModTime())) {
			newest = info
		}
	}
	if newest == nil || newest.Size() > codecache.MaxBytes {
		return e, false
	}
	data, err := os.ReadFile(filepath.Join(s.inner, newest.Name()))
	return codecache.Entry{Name: newest.Name(), Data: data}, err == nil
}

func (s *stage) clear() {
	for _, f := range s.files() {
		os.Remove(filepath.Join(s.inner, f.Name())) // at worst it is staged over later
	}
}

func (s *stage) close() {
	os.RemoveAll(s.dir) // what is left is swept by the next engine
	s.lock.Close()
}
