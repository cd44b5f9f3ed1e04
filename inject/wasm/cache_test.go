package wasm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/codecache"
)

// runOnce compiles and runs lab.wasm in an engine of its own on dir, and returns what the engine counted.
func runOnce(t *testing.T, dir string) Stats {
	t.Helper()
	e, err := New(Config{CacheDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	wasm := code(t, "lab")
	p, err := e.Compile(context.Background(), sha256.Sum256(wasm), 1, wasm, abi.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	b := bind(t, p, "alice")
	if got := value(t, b, order{op: 12}); got != 1 {
		t.Errorf("the function answers %d", got)
	}
	b.Close()
	p.Close()
	if err := e.Close(); err != nil { // also waits for the writer
		t.Error(err)
	}
	return e.Stats()
}

func cacheFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+cacheKind.Suffix))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestDiskCache(t *testing.T) {
	dir := t.TempDir()
	if s := runOnce(t, dir); s.Compiled != 1 || s.CacheHits != 0 {
		t.Fatalf("first: %+v", s)
	}
	if s := runOnce(t, dir); s.Compiled != 0 || s.CacheHits != 1 {
		t.Fatalf("second: %+v", s)
	}
	files := cacheFiles(t, dir)
	if len(files) != 1 {
		t.Fatalf("%d files", len(files))
	}
	good, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	step := max(len(good)/97, 1)
	for i := 0; i < len(good); i += step {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if err := os.WriteFile(files[0], bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if i > 40*step && i%(10*step) != 0 {
			continue
		}
		if s := runOnce(t, dir); s.CacheRejected != 1 || s.Compiled != 1 {
			t.Fatalf("byte %d of %d changed: %+v", i, len(good), s)
		}
		if now, err := os.ReadFile(files[0]); err != nil || !bytes.HasPrefix(now, []byte(cacheKind.Magic)) || bytes.Equal(now, bad) {
			t.Fatalf("the damaged file was not replaced (%v)", err)
		}
	}
	for _, n := range []int{0, 1, codecache.HeaderBytes - 1, codecache.HeaderBytes, len(good) - 1} {
		if err := os.WriteFile(files[0], good[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if s := runOnce(t, dir); s.CacheRejected != 1 || s.Compiled != 1 {
			t.Fatalf("cut to %d bytes: %+v", n, s)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "tmp-*")); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

// An intact wrapper around something that wazero cannot read, or that belongs to
// another module, must not stop the function.
func TestDiskCacheForeignContent(t *testing.T) {
	dir := t.TempDir()
	runOnce(t, dir)
	file := cacheFiles(t, dir)[0]
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := codecache.Open(dir, DefaultCacheBytes, cacheKind, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	key := strings.TrimSuffix(filepath.Base(file), cacheKind.Suffix)
	entry, err := cache.Decode(key, b)
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(entry.Data)
	damaged[len(damaged)/2]++ // in the machine code, which has a CRC of wazero's
	for name, e := range map[string]codecache.Entry{
		"code with another CRC": {Key: key, Name: entry.Name, Data: damaged},
		"no code":               {Key: key, Name: entry.Name, Data: []byte("WAZEVO")},
		"another module's":      {Key: key, Name: strings.Repeat("ab", 32), Data: entry.Data},
	} {
		if err := os.WriteFile(file, cache.Encode(e), 0o600); err != nil {
			t.Fatal(err)
		}
		if s := runOnce(t, dir); s.Compiled != 1 || s.CacheHits != 0 {
			t.Errorf("%s: %+v", name, s)
		}
		if s := runOnce(t, dir); s.CacheHits != 1 {
			t.Errorf("after %s: %+v", name, s)
		}
	}
}

func TestCacheKeyVersion(t *testing.T) {
	b, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := "github.com/tetratelabs/wazero " + wazeroVersion; !strings.Contains(string(b), want) {
		t.Errorf("go.mod does not require %q; change wazeroVersion with it", want)
	}
	if cacheKey(ID{}, false) == cacheKey(ID{}, true) || cacheKey(ID{}, false) == cacheKey(ID{1}, false) {
		t.Error("keys collide")
	}
}

// A module above smallModule goes through the other lane, and is cached as well.
func TestLargeModule(t *testing.T) {
	dir := t.TempDir()
	wasm := append(code(t, "echo"), 0)
	wasm = binary.AppendUvarint(wasm, smallModule+2) // a custom section
	wasm = append(append(wasm, 1, 'x'), make([]byte, smallModule)...)
	for i := range 2 {
		e, err := New(Config{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		p, err := e.Compile(t.Context(), sha256.Sum256(wasm), 1, wasm, abi.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		b := bind(t, p, "alice")
		acquire(t, b).Release()
		b.Close()
		p.Close()
		e.Close()
		if s := e.Stats(); s.Compiled != uint64(1-i) || s.CacheHits != uint64(i) {
			t.Errorf("time %d: %+v", i, s)
		}
	}
}
