package codecache

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var kind = Kind{Magic: "wherryMC", Suffix: ".wtt", Log: "test"}

func TestDecodeRefusesPaths(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", "/etc/passwd", ".hidden"} {
		c := &Cache{kind: kind, secret: make([]byte, secretBytes)}
		if _, err := c.Decode("k", c.Encode(Entry{Key: "k", Name: name, Data: []byte("x")})); err == nil {
			t.Errorf("an entry may be named %q", name)
		}
	}
}

func TestBounded(t *testing.T) {
	dir := t.TempDir()
	c, err := Open(dir, 10_000, kind, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * tempLifetime)
	stale := filepath.Join(dir, tempPrefix+"stale")
	os.WriteFile(stale, []byte("half"), 0o600)
	os.Chtimes(stale, old, old)
	for i := range 8 {
		key := fmt.Sprintf("%040d", i)
		if err := c.store(Entry{Key: key, Name: "n", Data: make([]byte, 3000)}); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(time.Duration(i-100) * time.Second)
		os.Chtimes(c.path(key), when, when)
		if i == 6 { // the oldest of those left is used
			if _, state := c.Load(fmt.Sprintf("%040d", 4)); state != Good {
				t.Error("entry 4 is gone already")
			}
		}
		c.evict()
	}
	c.Close()
	var keys []string
	for _, f := range c.Files() {
		keys = append(keys, strings.TrimSuffix(f.Name(), kind.Suffix)[39:])
	}
	if got := strings.Join(keys, ""); got != "467" {
		t.Errorf("entries %s are left, want 4 (used last), 6 and 7", got)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Error("a stale temporary file is left")
	}
}

// TestLooksSeldom: the writer looks at the directory at first, and then once it has written a part of the limit, not for each file; the limit holds.
func TestLooksSeldom(t *testing.T) {
	const limit = 64 << 10
	dir := t.TempDir()
	stale := filepath.Join(dir, tempPrefix+"stale") // goes whenever the writer looks
	publish := func(c *Cache, from, n int) {
		for i := range n {
			c.Publish(Entry{Key: fmt.Sprintf("%040d", from+i), Name: "n", Data: make([]byte, 1024)})
		}
		c.Close()
		c.once, c.queue = sync.Once{}, make(chan Entry, queueFiles)
		c.done.Go(c.write)
	}
	looked := func() bool { _, err := os.Stat(stale); return os.IsNotExist(err) }
	leave := func() {
		old := time.Now().Add(-2 * tempLifetime)
		os.WriteFile(stale, []byte("half"), 0o600)
		os.Chtimes(stale, old, old)
	}
	c, err := Open(dir, limit, kind, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { c.Close() }()
	for _, step := range []struct {
		n    int
		look bool
	}{{1, true}, {1, false}, {2, false}, {1, true}, {1, false}} { // a part is 4 KiB: three files and some
		leave()
		if publish(c, 0, step.n); looked() != step.look {
			t.Errorf("after %d more files the writer looked: %v", step.n, looked())
		}
	}
	for i := range 10 {
		publish(c, 100+10*i, 10)
		var total int64
		for _, f := range c.Files() {
			total += f.Size()
		}
		if total > limit {
			t.Errorf("after %d files there are %d bytes, the limit is %d", 10*(i+1), total, limit)
		}
	}
}

func FuzzDecode(f *testing.F) {
	c := &Cache{kind: kind, secret: make([]byte, secretBytes)}
	f.Add(c.Encode(Entry{Key: "k", Name: "name", Data: []byte("data")}))
	f.Add([]byte(kind.Magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := c.Decode("k", b)
		if err == nil && !bytes.Equal(c.Encode(e), b) {
			t.Errorf("%x decodes to %+v", b, e)
		}
	})
}

// TestKeeps: what is stored is there for the next program, until it is damaged.
func TestKeeps(t *testing.T) {
	dir := t.TempDir()
	open := func() *Cache {
		c, err := Open(dir, 1<<20, kind, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := open()
	c.Publish(Entry{Key: "k", Name: "n", Data: []byte("code")})
	c.Close()
	c = open()
	defer c.Close()
	if e, state := c.Load("k"); state != Good || e.Name != "n" || string(e.Data) != "code" {
		t.Errorf("%+v, %v", e, state)
	}
	if _, state := c.Load("other"); state != Missing {
		t.Error(state)
	}
	b, err := os.ReadFile(c.path("k"))
	if err != nil {
		t.Fatal(err)
	}
	other := &Cache{kind: kind, secret: c.secret}
	other.kind.Magic = "wherryXX"
	if _, err := other.Decode("k", b); err == nil {
		t.Error("one kind reads another's files")
	}
	if _, err := c.Decode("l", b); err == nil {
		t.Error("a file is believed under another key")
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 4
		if err := os.WriteFile(c.path("k"), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, state := c.Load("k"); state != Damaged {
			t.Fatalf("byte %d of %d changed: %v", i, len(b), state)
		}
		if _, state := c.Load("k"); state != Missing {
			t.Fatalf("the damaged file is still there")
		}
	}
}
