package faulttest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// badImages are encodings of a good image with one thing wrong.
func badImages(good []byte) map[string]struct {
	bytes  []byte
	reason string
} {
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	type bad = struct {
		bytes  []byte
		reason string
	}
	return map[string]bad{
		"truncated in the header":  {good[:20], "truncated"},
		"truncated in the content": {good[:len(good)-9], "truncated"},
		"a byte more":              {append(bytes.Clone(good), 0), ""},
		"corrupted":                {change(func(b []byte) []byte { b[len(b)/2] ^= 0x40; return b }), "checksum"},
		"identity of another":      {change(func(b []byte) []byte { b[40] ^= 1; return b }), "checksum"},
		"a later version":          {change(func(b []byte) []byte { b[8]++; return b }), "version"},
		"oversized by its header": {change(func(b []byte) []byte {
			binary.LittleEndian.PutUint64(b[16:], image.MaxBytes+1)
			return b
		}), "large"},
		"no image":    {[]byte("something else altogether"), ""},
		"no wasm":     {replaceCode(good, []byte("not wasm")), ""},
		"half a wasm": {replaceCode(good, nil), ""},
	}
}

// replaceCode puts other code into an image and makes its hash right: nil means half of what is there.
func replaceCode(good, code []byte) []byte {
	at := bytes.Index(good, []byte("\x00asm"))
	b := bytes.Clone(good)
	if code == nil {
		clear(b[at+(len(b)-at)/2:])
	} else {
		clear(b[at:])
		copy(b[at:], code)
	}
	sum := sha256.Sum256(b[64:])
	copy(b[32:], sum[:])
	return b
}

// TestBadImageFile covers: a truncated, corrupted, oversized or later image in
// a file is refused with the reason.
func TestBadImageFile(t *testing.T) {
	t.Parallel()
	good := guestImage(t, "faults", nil).Encode()
	dir := t.TempDir()
	for name, bad := range badImages(good) {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".wfn")
		if err := os.WriteFile(path, bad.bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = image.Parse(b); err == nil || !strings.Contains(err.Error(), bad.reason) {
			t.Errorf("%s: %v, want a reason with %q", name, err, bad.reason)
		}
	}
	if _, err := image.Parse(make([]byte, image.MaxBytes+1)); err == nil {
		t.Error("an oversized file is accepted")
	}
}

// TestBadImageArrives covers: an origin sends such an image as an injected
// object, in the first message or in chunks when asked. The branch fails with
// the reason, nothing gets into the cache, and the node serves on.
func TestBadImageArrives(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	img := guestImage(t, "faults", nil)
	good := img.Encode()
	h := newHostile(t, g, "alice", 0)
	next := injection{}
	try := func(object []byte, id travel.ID, texts ...string) {
		t.Helper()
		for _, inline := range [][]byte{object, nil} {
			next.seq++
			next.image, next.inline = id, inline
			next.handle = uint16(next.seq) // each declares another binding
			h.serve(object)
			h.inject(next)
			next.transfer++
			h.expect(kindDone, append(texts, "n0")...)
		}
	}
	cached := g.nodes[0].report(t).Stats.CacheCount
	for name, bad := range badImages(good) {
		t.Log(name)
		try(bad.bytes, travel.ID(sha256.Sum256([]byte(name))), "could not be had")
		if len(bad.bytes) >= 64 {
			try(bad.bytes, travel.ID(bad.bytes[32:64]), bad.reason)
		}
	}
	// A whole image, but not the one that was announced.
	try(good, travel.ID(sha256.Sum256([]byte("another"))), "identity")
	if n := g.nodes[0].report(t).Stats.CacheCount; n != cached {
		t.Errorf("%d objects more got into the cache", n-cached)
	}
	// The same peer may still send a good one.
	h.inject(injection{seq: next.seq + 1, transfer: next.transfer, image: travel.ID(img.ID()), inline: good, payload: order(0, 7, 7), handle: 500})
	h.expect(kindDone, string(order(0, 7, 7)))
	g.serves()
}

// TestOversizedObject covers: an object that says it is larger than what is
// taken, one whose chunks never come, and one that changes its size.
func TestOversizedObject(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, func(s *settings) { s.Travel = travel.Limits{ObjectBytes: 1 << 20, FetchRetry: 5 * time.Millisecond} })
	h := newHostile(t, g, "alice", 0)
	chunk := make([]byte, travel.ChunkBytes)
	answers := []struct {
		reply  func(id travel.ID, first int) []byte
		reason string
	}{
		{func(id travel.ID, _ int) []byte { return code(id, 1<<20+1, 0, chunk) }, "at most 1048576"},
		{func(travel.ID, int) []byte { return nil }, "does not answer"},
		{func(id travel.ID, _ int) []byte { return code(id, 0, 0, nil) }, "does not have it"},
		{func(id travel.ID, first int) []byte { return code(id, 600<<10+uint32(first), uint16(first), chunk) }, "and then"},
	}
	for i, a := range answers {
		id := travel.ID(sha256.Sum256([]byte{byte(i)}))
		h.mu.Lock()
		h.need = func(id travel.ID, first, count int) {
			for k := range count {
				if b := a.reply(id, first+k); b != nil {
					h.to.Post(frame(kindCode), b, nil)
				}
			}
		}
		h.mu.Unlock()
		h.inject(injection{seq: uint64(i + 1), transfer: uint64(i), image: id, handle: uint16(i)})
		h.expect(kindDone, "n0", "could not be had", a.reason)
	}
	g.serves()
}

// TestGarbageFrames covers: bytes that are no message of the protocol, on each
// of its frame ids: the peer is cut off, and nobody else notices.
func TestGarbageFrames(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	for k := travel.Kind(0); k < travel.Kinds; k++ {
		for _, garbage := range [][]byte{{}, {0xff}, bytes.Repeat([]byte{0xff}, 40), bytes.Repeat([]byte{0xa5}, 60<<10)} {
			h := newHostile(t, g, "cluster", 0)
			h.send(k, garbage)
			if len(garbage) < 2 {
				h.cutOff()
			} else {
				time.Sleep(pause / 10) // some of it can be read, and speaks of nothing that there is
			}
			h.el.Close()
		}
	}
	g.serves()
}

// TestReplayedTransfers covers: the same transfer sent twice runs once.
func TestReplayedTransfers(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, nil)
	h := newHostile(t, g, "alice", 0)
	img := guestImage(t, "faults", nil)
	before := g.nodes[0].report(t).Stats.Runs
	for range 5 {
		h.inject(injection{seq: 1, image: travel.ID(img.ID()), inline: img.Encode(), payload: order(0, 1, 1)})
	}
	h.expect(kindDone, string(order(0, 1, 1)))
	time.Sleep(pause)
	if n := g.nodes[0].report(t).Stats.Runs - before; n != 1 {
		t.Errorf("it ran %d times", n)
	}
	g.serves()
}
