package image

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// Whatever Parse accepts it must write again byte for byte; what it refuses it
// must refuse without a panic. The checksum is made right first, or nothing
// behind it would ever be reached.
func FuzzParse(f *testing.F) {
	f.Add(mustBuild(f).Encode())
	f.Add(signedImage(f).Encode())
	f.Add([]byte(Magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		check(t, b)
		if len(b) < HeaderBytes {
			return
		}
		b = bytes.Clone(b)
		le := binary.LittleEndian
		copy(b, Magic)
		le.PutUint32(b[atVersion:], FormatVersion)
		le.PutUint32(b[atFlags:], 0)
		le.PutUint64(b[atTotal:], uint64(len(b)))
		content := le.Uint64(b[atContent:])
		if most := uint64(len(b) - HeaderBytes); content > most {
			content = most &^ (alignment - 1)
			le.PutUint64(b[atContent:], content)
		}
		id := identity(b[:HeaderBytes+int(content)])
		copy(b[atID:], id[:])
		check(t, b)
	})
}

func check(t *testing.T, b []byte) {
	img, err := Parse(b)
	if err != nil {
		if img != nil {
			t.Fatal("an image and an error")
		}
		return
	}
	if !bytes.Equal(img.Encode(), b) {
		t.Fatal("what Parse accepted is not what Encode writes")
	}
	again, err := Build(img.Manifest(), img.Entries()...)
	if err != nil || again.ID() != img.ID() {
		t.Fatalf("built again it is %v, %v", again, err)
	}
}

// Modules of any shape are inspected without a panic.
func FuzzInspectWasm(f *testing.F) {
	f.Add(module("x", "fork", "reply", "window"))
	f.Add(wasmOf("\x01\x01\x60\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		imports, err := inspectWasm(b, 1)
		if err != nil && imports != nil {
			t.Fatal("imports and an error")
		}
		if !ascending(imports) {
			t.Fatalf("imports %v are not sorted", imports)
		}
	})
}
