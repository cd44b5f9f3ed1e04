package wasm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/cpu"

	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// diskCache keeps machine code in a directory, one file per program variant.
//
// wazero has a file cache of its own, but it is unbounded, writes with an fsync on the path
// of the first use, and checks only a part of what it reads back, and that with
// a CRC: a damaged offset would be jumped to. So wazero's cache directory is a
// private one in memory (stage). What wazero writes there is wrapped (magic, version, SHA-256) and put into the cache directory by a
// background goroutine; on a hit the wrapped bytes are verified first and then staged for wazero to find.
type diskCache struct {
	dir   string
	limit int64
	log   *slog.Logger

	queue   chan cacheEntry
	done    sync.WaitGroup
	once    sync.Once
	evicted atomic.Uint64
}

// cacheEntry is one file to be written.
type cacheEntry struct {
	key  string
	name string // wazero's name for it
	data []byte
}

// An entry: magic, version, length of the name, length of the data, SHA-256 of name and data,
// name, data; little-endian.
const (
	cacheMagic   = "wherryMC"
	cacheVersion = 1
	headerBytes  = 8 + 4 + 4 + 8 + sha256.Size
	cacheSuffix  = ".wmc"
	tempPattern  = "tmp-*"
	tempPrefix   = "tmp-"
	tempLifetime = time.Hour // of a file that a crashed writer left

	maxCacheName  = 255
	maxCacheEntry = 256 << 20 // machine code of the largest module: 8 MiB of wasm become under 100 MiB
	cacheQueue    = 16        // files waiting to be written; beyond it they are not cached
)

// cacheKey names a variant's file: whatever changes the machine code is hashed in.
func cacheKey(id ID, checkStores bool) string {
	h := sha256.New()
	fmt.Fprintf(h, "%x %t wazero %s revision %d %s/%s", id, checkStores, wazeroVersion, wasmcode.Revision, runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(h, " %v %v", cpu.X86, cpu.ARM64)
	return hex.EncodeToString(h.Sum(nil)[:20])
}

func openCache(dir string, limit int64, log *slog.Logger) (*diskCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("wasm: cache directory: %w", err)
	}
	c := &diskCache{dir: dir, limit: limit, log: log, queue: make(chan cacheEntry, cacheQueue)}
	c.done.Go(c.write)
	return c, nil
}

func (c *diskCache) path(key string) string { return filepath.Join(c.dir, key+cacheSuffix) }

// What load found.
const (
	cacheMissing = iota
	cacheDamaged
	cacheGood
)

// load reads and verifies an entry. A damaged one is removed.
func (c *diskCache) load(key string) (e cacheEntry, state int) {
	b, err := readBounded(c.path(key))
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			c.log.Warn("wasm: cached code cannot be read", "file", c.path(key), "err", err)
		}
		return e, cacheMissing
	}
	if e, err = decodeEntry(b); err != nil {
		c.log.Warn("wasm: cached code is damaged; it is removed and compiled again", "file", c.path(key), "err", err)
		c.remove(key)
		return e, cacheDamaged
	}
	now := time.Now()
	os.Chtimes(c.path(key), now, now) // for the eviction order; if it fails the file goes a little early
	return e, cacheGood
}

func readBounded(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > headerBytes+maxCacheName+maxCacheEntry {
		return nil, fmt.Errorf("%d bytes are too many", st.Size())
	}
	return os.ReadFile(path)
}

func encodeEntry(e cacheEntry) []byte {
	b := make([]byte, 0, headerBytes+len(e.name)+len(e.data))
	b = append(b, cacheMagic...)
	b = binary.LittleEndian.AppendUint32(b, cacheVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.name)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(e.data)))
	h := sha256.New()
	h.Write([]byte(e.name))
	h.Write(e.data)
	b = h.Sum(b)
	return append(append(b, e.name...), e.data...)
}

func decodeEntry(b []byte) (cacheEntry, error) {
	if len(b) < headerBytes || !bytes.HasPrefix(b, []byte(cacheMagic)) {
		return cacheEntry{}, errors.New("no header")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != cacheVersion {
		return cacheEntry{}, fmt.Errorf("version %d, want %d", v, cacheVersion)
	}
	nameLen, dataLen := uint64(binary.LittleEndian.Uint32(b[12:])), binary.LittleEndian.Uint64(b[16:])
	rest := b[headerBytes:]
	if nameLen > maxCacheName || dataLen > maxCacheEntry || nameLen+dataLen != uint64(len(rest)) {
		return cacheEntry{}, fmt.Errorf("%d bytes, the header says %d and %d", len(rest), nameLen, dataLen)
	}
	if sum := sha256.Sum256(rest); !bytes.Equal(sum[:], b[24:headerBytes]) {
		return cacheEntry{}, errors.New("the checksum is wrong")
	}
	e := cacheEntry{name: string(rest[:nameLen]), data: rest[nameLen:]}
	if e.name == "" || e.name != filepath.Base(e.name) || e.name[0] == '.' {
		return cacheEntry{}, fmt.Errorf("a file name %q", e.name)
	}
	return e, nil
}

// publish hands an entry to the background writer.
func (c *diskCache) publish(e cacheEntry) {
	select {
	case c.queue <- e:
	default: // it is compiled again next time
		c.log.Debug("wasm: the cache writer is behind; code is not cached", "key", e.key)
	}
}

func (c *diskCache) remove(key string) {
	if err := os.Remove(c.path(key)); err != nil && !errors.Is(err, os.ErrNotExist) {
		c.log.Warn("wasm: removing cached code", "err", err)
	}
}

// write is the background writer. It ends when the queue is closed and empty.
func (c *diskCache) write() {
	for e := range c.queue {
		if err := c.store(e); err != nil {
			c.log.Warn("wasm: code is not cached", "err", err)
			continue
		}
		c.evict()
	}
}

// store writes an entry under a temporary name and renames it, so that nobody
// reads half of one. It is not synced: a file cut short by a power loss fails its checksum.
func (c *diskCache) store(e cacheEntry) error {
	f, err := os.CreateTemp(c.dir, tempPattern)
	if err != nil {
		return err
	}
	_, err = f.Write(encodeEntry(e))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), c.path(e.key))
	}
	if err != nil {
		os.Remove(f.Name()) // the first error says more
	}
	return err
}

// evict removes the longest unused files until the rest fit the limit. The
// directory is the truth: other processes may write to it too.
func (c *diskCache) evict() {
	kept := c.files()
	var total int64
	for _, info := range kept {
		total += info.Size()
	}
	slices.SortFunc(kept, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range kept {
		if total <= c.limit {
			return
		}
		if os.Remove(filepath.Join(c.dir, info.Name())) == nil {
			total -= info.Size()
			c.evicted.Add(1)
		}
	}
}

// files lists the entries, and removes what crashed writers left.
func (c *diskCache) files() (entries []os.FileInfo) {
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
		case strings.HasSuffix(f.Name(), cacheSuffix):
			entries = append(entries, info)
		case strings.HasPrefix(f.Name(), tempPrefix) && time.Since(info.ModTime()) > tempLifetime:
			os.Remove(filepath.Join(c.dir, f.Name())) // tried again next time
		}
	}
	return entries
}

// close waits for the writer.
func (c *diskCache) close() {
	c.once.Do(func() {
		close(c.queue)
		c.done.Wait()
	})
}
