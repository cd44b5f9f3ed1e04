package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// Magic is the first 8 bytes of every image.
	Magic = "WHERRYFN"
	// FormatVersion is the version that is written; it is the only one so far.
	FormatVersion = 1
	// HeaderBytes is the length of the fixed header.
	HeaderBytes = 64
	// MaxBytes bounds an image, signatures included: what one message may
	// carry and one receiver must hold while it checks it.
	MaxBytes = 16 << 20
)

// What Parse finds wrong.
var (
	ErrFormat    = errors.New("image: malformed")
	ErrMagic     = errors.New("image: not a function image")
	ErrVersion   = errors.New("image: unknown format version")
	ErrTruncated = errors.New("image: truncated")
	ErrTooLarge  = errors.New("image: too large")
	ErrChecksum  = errors.New("image: content does not match its checksum")
)

// Image is a function image. It never changes.
type Image struct {
	manifest   Manifest
	entries    []Entry
	signatures []Signature
	encoded    []byte // header and content, without signatures
	copyID     ID     // see CopyID
	id         ID
	call       *Call
}

// Offsets in the header.
const (
	atVersion = 8
	atFlags   = 12
	atTotal   = 16
	atContent = 24
	atID      = 32
)

// alignment of everything of variable length in the content.
const alignment = 8

// entryHeadBytes is form, triple and feature lengths, and code length.
const entryHeadBytes = 16

// Build makes an image. It copies what it is given, fills in what the manifest
// leaves open (see ParseManifest) and, if a wasm entry is there, its imports.
// Entries may come in any order.
func Build(m Manifest, entries ...Entry) (*Image, error) {
	img := &Image{manifest: m.withDefaults()}
	for _, e := range entries {
		e.Features = slices.Clone(e.Features)
		e.Code = bytes.Clone(e.Code)
		img.entries = append(img.entries, e)
	}
	slices.SortStableFunc(img.entries, compareEntries)
	if w, ok := img.Entry(Wasm, ""); ok && len(img.manifest.Imports) == 0 {
		imports, err := inspectWasm(w.Code, img.manifest.ABI)
		if err != nil {
			return nil, err
		}
		img.manifest.Imports = imports
	}
	if err := img.validate(); err != nil {
		return nil, err
	}
	return img, img.seal()
}

// validate checks the image, and works out what calls need of it.
func (m *Image) validate() error {
	err := m.manifest.validate()
	if err != nil {
		return err
	}
	if m.call, err = newCall(&m.manifest); err != nil {
		return err
	}
	if len(m.entries) == 0 {
		return fmt.Errorf("%w: an image needs at least one entry", ErrEntry)
	}
	if len(m.entries) > MaxEntries {
		return fmt.Errorf("%w: %d entries, at most %d are allowed", ErrEntry, len(m.entries), MaxEntries)
	}
	for i := range m.entries {
		if err := m.entries[i].validate(); err != nil {
			return fmt.Errorf("entry %d (%v): %w", i, m.entries[i].Form, err)
		}
		if i > 0 && compareEntries(m.entries[i-1], m.entries[i]) >= 0 {
			return fmt.Errorf("%w: entry %d is out of order or there twice", ErrEntry, i)
		}
	}
	if w, ok := m.Entry(Wasm, ""); ok {
		imports, err := inspectWasm(w.Code, m.manifest.ABI)
		if err != nil {
			return fmt.Errorf("entry 0 (%v): %w", Wasm, err) // the first form in the order of entries
		}
		if !slices.Equal(imports, m.manifest.Imports) {
			return fmt.Errorf("%w: imports are %v, the wasm module imports %v", ErrManifest, m.manifest.Imports, imports)
		}
	}
	return nil
}

// seal encodes header and content and takes the identity.
func (m *Image) seal() error {
	text, err := m.manifest.canonical()
	if err != nil {
		return err
	}
	if len(text) > MaxManifestBytes {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrManifest, len(text), MaxManifestBytes)
	}
	le := binary.LittleEndian
	b := make([]byte, HeaderBytes, HeaderBytes+len(text)+entryHeadBytes)
	b = le.AppendUint32(b, uint32(len(text)))
	b = le.AppendUint32(b, uint32(len(m.entries)))
	b = pad(append(b, text...))
	for _, e := range m.entries {
		features := strings.Join(e.Features, ",")
		b = le.AppendUint32(b, uint32(e.Form))
		b = le.AppendUint16(b, uint16(len(e.Triple)))
		b = le.AppendUint16(b, uint16(len(features)))
		b = le.AppendUint64(b, uint64(len(e.Code)))
		b = pad(append(append(b, e.Triple...), features...))
		b = pad(append(b, e.Code...))
		if len(b) > MaxBytes {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, MaxBytes)
		}
	}
	copy(b, Magic)
	le.PutUint32(b[atVersion:], FormatVersion)
	le.PutUint32(b[atFlags:], 0)
	le.PutUint64(b[atTotal:], uint64(len(b)))
	le.PutUint64(b[atContent:], uint64(len(b)-HeaderBytes))
	m.id = identity(b)
	m.copyID = m.id
	copy(b[atID:], m.id[:])
	m.encoded = b
	return nil
}

// identity hashes header and content b, leaving out the header's total length
// (signatures change it) and the identity itself.
func identity(b []byte) ID {
	h := sha256.New()
	h.Write(b[:atTotal])
	h.Write(b[atContent:atID])
	h.Write(b[HeaderBytes:])
	return ID(h.Sum(nil))
}

func pad(b []byte) []byte {
	for len(b)%alignment != 0 {
		b = append(b, 0)
	}
	return b
}

// ID is the image's identity.
func (m *Image) ID() ID { return m.id }

// CopyID tells copies of one image with different signatures apart: the identity of one that is not signed, else the SHA-256 of the whole file.
func (m *Image) CopyID() ID { return m.copyID }

// Name is the manifest's name: a label, not an identity.
func (m *Image) Name() string { return m.manifest.Name }

// Manifest returns a copy of the manifest, to be changed as one likes. Call has what a call needs of it, without a copy.
func (m *Image) Manifest() Manifest { return m.manifest.clone() }

// EntryCount is how many entries there are.
func (m *Image) EntryCount() int { return len(m.entries) }

// Entries returns all entries, in the file's order. Their Code is shared.
func (m *Image) Entries() []Entry {
	out := slices.Clone(m.entries)
	for i := range out {
		out[i].Features = slices.Clone(out[i].Features)
	}
	return out
}

// Size is the length of what Encode returns.
func (m *Image) Size() int { return len(m.encoded) + signaturesBytes(len(m.signatures)) }

// Encode returns the image as a file.
func (m *Image) Encode() []byte {
	b := make([]byte, len(m.encoded), m.Size())
	copy(b, m.encoded)
	b = appendSignatures(b, m.signatures)
	binary.LittleEndian.PutUint64(b[atTotal:], uint64(len(b)))
	return b
}
