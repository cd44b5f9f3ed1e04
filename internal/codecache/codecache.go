// Package codecache keeps machine code in a directory: one file for each program and whatever its code depends on, which the
// key names. The directory is bounded, and what has not been used for longest goes first; several processes may share it.
//
// What is read back was verified: the directory and its files are this user's, and no other's to write to, and each file begins with a magic number,
// a version and a checksum that takes the directory's secret (HMAC-SHA256, of the key too). Any other
// is removed, and its code is compiled anew. Files are written in the background and without a sync: a
// cache is never in the way of the first use.
package codecache

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is whose code it is. Several kinds may share a directory; each counts and evicts its own files.
type Kind struct {
	Magic  string // MagicBytes of them
	Suffix string // of the files: ".wmc"
	Log    string // before the messages: "wasm"
}

// MagicBytes is the length of a Kind's Magic, HeaderBytes that of what precedes name and data.
const (
	MagicBytes  = 8
	HeaderBytes = MagicBytes + 4 + 4 + 8 + sha256.Size
)

// Cache is such a directory. Its methods may be called from any goroutine.
type Cache struct {
	dir    string
	limit  int64
	kind   Kind
	log    *slog.Logger
	secret []byte

	queue   chan Entry
	done    sync.WaitGroup
	once    sync.Once
	evicted atomic.Uint64

	// The writer's.
	seen, unseen int64 // bytes of files: when it last looked at the directory, and those that it wrote since
}

// Entry is one file.
type Entry struct {
	Key  string // its name in the directory, but for the suffix
	Name string // a file's name that goes along, without a folder
	Data []byte
}

// A file: magic, version, length of the name, length of the data, HMAC-SHA256 of all that precedes it, the key, name and data;
// name, data; little-endian.
const (
	version      = 2
	tempPattern  = "tmp-*"
	tempPrefix   = "tmp-"
	tempLifetime = time.Hour // of a file that a crashed writer left

	// usedAgain is how old a file's time of use is before it is set again: who loads it waits for that.
	usedAgain = time.Minute

	maxName    = 255
	queueFiles = 16 // waiting to be written; beyond it they are not cached
	// lookPart is the part of the limit that a process writes between two looks at the directory, which cost a system call a file: by so much
	// each of several processes may go beyond the limit.
	lookPart = 16
)

// MaxBytes bounds an entry's Data: of the largest module, 8 MiB of wasm, the machine code has under 100 MiB.
const MaxBytes = 256 << 20

// Open makes the directory if it is missing, and a secret in the place of one that is damaged. ErrShared: others can write to it.
func Open(dir string, limitBytes int64, kind Kind, log *slog.Logger) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%s: cache directory: %w", kind.Log, err)
	}
	err := Check(dir)
	c := &Cache{dir: dir, limit: limitBytes, kind: kind, log: log, queue: make(chan Entry, queueFiles)}
	if err == nil {
		c.secret, err = c.readOrMakeSecret()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cache directory: %w", kind.Log, err)
	}
	c.done.Go(c.write)
	return c, nil
}

// Dir is where the files are; Limit bounds them, in bytes; Evicted counts those that went for want of room.
func (c *Cache) Dir() string     { return c.dir }
func (c *Cache) Limit() int64    { return c.limit }
func (c *Cache) Evicted() uint64 { return c.evicted.Load() }

func (c *Cache) path(key string) string { return filepath.Join(c.dir, key+c.kind.Suffix) }

// State is what Load found.
type State int

const (
	Missing State = iota
	Damaged
	Good
)

// Load reads and verifies an entry. A damaged one is removed.
func (c *Cache) Load(key string) (e Entry, state State) {
	b, used, err := readOwn(c.path(key), HeaderBytes+maxName+MaxBytes)
	if err != nil {
		if errors.Is(err, ErrShared) {
			c.Remove(key) // or nothing would ever be kept under that name
		}
		if !errors.Is(err, os.ErrNotExist) {
			c.log.Warn(c.kind.Log+": cached code cannot be read", "file", c.path(key), "err", err)
		}
		return e, Missing
	}
	if e, err = c.Decode(key, b); err != nil {
		c.log.Warn(c.kind.Log+": cached code is damaged; it is removed and compiled again", "file", c.path(key), "err", err)
		c.Remove(key)
		return e, Damaged
	}
	if now := time.Now(); now.Sub(used) > usedAgain {
		os.Chtimes(c.path(key), now, now) // for the eviction order; if it fails the file goes a little early
	}
	return e, Good
}

// Encode makes a file of an entry.
func (c *Cache) Encode(e Entry) []byte {
	b := make([]byte, 0, HeaderBytes+len(e.Name)+len(e.Data))
	b = append(b, c.kind.Magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Name)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(e.Data)))
	b = append(b, c.sum(e.Key, b, []byte(e.Name), e.Data)...)
	return append(append(b, e.Name...), e.Data...)
}

func (c *Cache) sum(key string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, c.secret)
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(key))))
	h.Write([]byte(key))
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// Decode reads the file that lies under a key, and verifies it.
func (c *Cache) Decode(key string, b []byte) (Entry, error) {
	if len(b) < HeaderBytes || !bytes.HasPrefix(b, []byte(c.kind.Magic)) {
		return Entry{}, errors.New("no header")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != version {
		return Entry{}, fmt.Errorf("version %d, want %d", v, version)
	}
	nameLen, dataLen := uint64(binary.LittleEndian.Uint32(b[12:])), binary.LittleEndian.Uint64(b[16:])
	rest := b[HeaderBytes:]
	if nameLen > maxName || dataLen > MaxBytes || nameLen+dataLen != uint64(len(rest)) {
		return Entry{}, fmt.Errorf("%d bytes, the header says %d and %d", len(rest), nameLen, dataLen)
	}
	if !hmac.Equal(c.sum(key, b[:HeaderBytes-sha256.Size], rest), b[HeaderBytes-sha256.Size:HeaderBytes]) {
		return Entry{}, errors.New("the checksum is wrong")
	}
	e := Entry{Key: key, Name: string(rest[:nameLen]), Data: rest[nameLen:]}
	if e.Name == "" || e.Name != filepath.Base(e.Name) || e.Name[0] == '.' {
		return Entry{}, fmt.Errorf("a file name %q", e.Name)
	}
	return e, nil
}

// Publish hands an entry to the background writer.
func (c *Cache) Publish(e Entry) {
	select {
	case c.queue <- e:
	default: // it is compiled again next time
		c.log.Debug(c.kind.Log+": the cache writer is behind; code is not cached", "key", e.Key)
	}
}

// Remove takes a file away that its user could not read.
func (c *Cache) Remove(key string) {
	if err := os.Remove(c.path(key)); err != nil && !errors.Is(err, os.ErrNotExist) {
		c.log.Warn(c.kind.Log+": removing cached code", "err", err)
	}
}

// write is the background writer. It ends when the queue is closed and empty.
func (c *Cache) write() {
	for e := range c.queue {
		if err := c.store(e); err != nil {
			c.log.Warn(c.kind.Log+": code is not cached", "err", err)
			continue
		}
		c.unseen += int64(HeaderBytes + len(e.Name) + len(e.Data))
		if first := c.seen == 0; first || c.unseen > c.limit/lookPart || c.seen+c.unseen > c.limit {
			c.evict()
		}
	}
}

// store writes an entry under a temporary name and renames it, so that nobody
// reads half of one. It is not synced: a file cut short by a power loss fails its checksum.
func (c *Cache) store(e Entry) error {
	f, err := os.CreateTemp(c.dir, tempPattern)
	if err != nil {
		return err
	}
	_, err = f.Write(c.Encode(e))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), c.path(e.Key))
	}
	if err != nil {
		os.Remove(f.Name()) // the first error says more
	}
	return err
}

// evict removes the longest unused files once they are more than the limit, and a lookPart of it more, so that it need not look again soon. The
// directory is the truth: other processes may write to it too.
func (c *Cache) evict() {
	kept := c.Files()
	var total int64
	for _, info := range kept {
		total += info.Size()
	}
	defer func() { c.seen, c.unseen = total, 0 }()
	if total <= c.limit {
		return
	}
	slices.SortFunc(kept, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range kept {
		if total <= c.limit-c.limit/lookPart {
			return
		}
		if os.Remove(filepath.Join(c.dir, info.Name())) == nil {
			total -= info.Size()
			c.evicted.Add(1)
		}
	}
}

// Files lists the entries, and removes what crashed writers left.
func (c *Cache) Files() (entries []os.FileInfo) {
	files, err := os.ReadDir(c.dir)
	if err != nil {
		return nil
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			continue
		}
		switch {
		case strings.HasSuffix(f.Name(), c.kind.Suffix):
			entries = append(entries, info)
		case strings.HasPrefix(f.Name(), tempPrefix) && time.Since(info.ModTime()) > tempLifetime:
			os.Remove(filepath.Join(c.dir, f.Name())) // tried again next time
		}
	}
	return entries
}

// Close waits for the writer.
func (c *Cache) Close() {
	c.once.Do(func() {
		close(c.queue)
		c.done.Wait()
	})
}
