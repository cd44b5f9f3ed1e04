package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// Header is what can be known of an image from its first HeaderBytes bytes,
// before the rest has arrived. Nothing of it has been checked against the content.
type Header struct {
	TotalBytes   uint64
	ContentBytes uint64
	ID           ID
}

// ParseHeader reads a header; b may be longer.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < len(Magic) || string(b[:len(Magic)]) != Magic {
		if len(b) < len(Magic) && strings.HasPrefix(Magic, string(b)) {
			return Header{}, fmt.Errorf("%w: %d bytes, the header alone has %d", ErrTruncated, len(b), HeaderBytes)
		}
		return Header{}, fmt.Errorf("%w: it starts with %q, not with %q", ErrMagic, b[:min(len(b), len(Magic))], Magic)
	}
	if len(b) < HeaderBytes {
		return Header{}, fmt.Errorf("%w: %d bytes, the header alone has %d", ErrTruncated, len(b), HeaderBytes)
	}
	le := binary.LittleEndian
	if v := le.Uint32(b[atVersion:]); v != FormatVersion {
		return Header{}, fmt.Errorf("%w: %d, this program reads version %d; rebuild the image with wherry fn build, or update wherry", ErrVersion, v, FormatVersion)
	}
	if f := le.Uint32(b[atFlags:]); f != 0 {
		return Header{}, fmt.Errorf("%w: unknown flags %#x", ErrFormat, f)
	}
	h := Header{
		TotalBytes:   le.Uint64(b[atTotal:]),
		ContentBytes: le.Uint64(b[atContent:]),
		ID:           ID(b[atID:HeaderBytes]),
	}
	if h.TotalBytes > MaxBytes {
		return Header{}, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, h.TotalBytes, MaxBytes)
	}
	if h.TotalBytes < HeaderBytes || h.ContentBytes > h.TotalBytes-HeaderBytes || h.ContentBytes%alignment != 0 {
		return Header{}, fmt.Errorf("%w: a content of %d bytes in a file of %d", ErrFormat, h.ContentBytes, h.TotalBytes)
	}
	return h, nil
}

// Parse reads an image, which must be all of b, and checks all of it. It keeps
// no reference to b.
func Parse(b []byte) (*Image, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, len(b), MaxBytes)
	}
	h, err := ParseHeader(b)
	if err != nil {
		return nil, err
	}
	if uint64(len(b)) < h.TotalBytes {
		return nil, fmt.Errorf("%w: %d of %d bytes are there", ErrTruncated, len(b), h.TotalBytes)
	}
	if uint64(len(b)) > h.TotalBytes {
		return nil, fmt.Errorf("%w: %d bytes follow the image", ErrFormat, uint64(len(b))-h.TotalBytes)
	}
	end := HeaderBytes + int(h.ContentBytes)
	if got := identity(b[:end]); got != h.ID {
		return nil, fmt.Errorf("%w: SHA-256 is %s, the header says %s", ErrChecksum, got, h.ID)
	}
	img := &Image{id: h.ID, copyID: h.ID, encoded: bytes.Clone(b[:end])}
	binary.LittleEndian.PutUint64(img.encoded[atTotal:], uint64(end))
	if err := img.parseContent(); err != nil {
		return nil, err
	}
	if err := img.validate(); err != nil {
		return nil, err
	}
	if img.signatures, err = parseSignatures(b[end:]); err != nil {
		return nil, err
	}
	if len(img.signatures) > 0 {
		img.copyID = sha256.Sum256(b)
	}
	return img, nil
}

// contentReader walks the content; the first error stops it.
type contentReader struct {
	b   []byte // the image up to the end of its content
	at  int
	err error
}

func (r *contentReader) take(n uint64, what string) []byte {
	if r.err != nil {
		return nil
	}
	if n > uint64(len(r.b)-r.at) {
		r.err = fmt.Errorf("%w: %s at byte %d has %d bytes, %d are left", ErrFormat, what, r.at, n, len(r.b)-r.at)
		return nil
	}
	r.at += int(n)
	return r.b[r.at-int(n) : r.at : r.at]
}

// padding checks that the bytes up to the next multiple of 8 are zero.
func (r *contentReader) padding() {
	for _, c := range r.take(uint64(-r.at&(alignment-1)), "padding") {
		if c != 0 && r.err == nil {
			r.err = fmt.Errorf("%w: padding before byte %d is not zero", ErrFormat, r.at)
		}
	}
}

// parseContent fills in manifest and entries from the encoded bytes, whose
// code the entries share.
func (m *Image) parseContent() error {
	r := &contentReader{b: m.encoded, at: HeaderBytes}
	head := r.take(8, "content head")
	if r.err != nil {
		return r.err
	}
	le := binary.LittleEndian
	manifestBytes, count := le.Uint32(head), le.Uint32(head[4:])
	if manifestBytes > MaxManifestBytes {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrManifest, manifestBytes, MaxManifestBytes)
	}
	if count > MaxEntries {
		return fmt.Errorf("%w: %d entries, at most %d are allowed", ErrEntry, count, MaxEntries)
	}
	text := r.take(uint64(manifestBytes), "manifest")
	r.padding()
	for i := uint32(0); i < count && r.err == nil; i++ {
		m.entries = append(m.entries, r.entry())
	}
	if r.err != nil {
		return r.err
	}
	if r.at != len(r.b) {
		return fmt.Errorf("%w: %d bytes follow the last entry", ErrFormat, len(r.b)-r.at)
	}
	return m.parseManifest(text)
}

func (r *contentReader) entry() Entry {
	head := r.take(entryHeadBytes, "entry head")
	if r.err != nil {
		return Entry{}
	}
	le := binary.LittleEndian
	e := Entry{Form: Form(le.Uint32(head))}
	triple := r.take(uint64(le.Uint16(head[4:])), "target triple")
	features := r.take(uint64(le.Uint16(head[6:])), "CPU features")
	r.padding()
	e.Code = r.take(le.Uint64(head[8:]), "code")
	r.padding()
	e.Triple = string(triple)
	if len(features) > 0 {
		e.Features = strings.Split(string(features), ",")
	}
	return e
}

// parseManifest accepts the canonical form only.
func (m *Image) parseManifest(text []byte) error {
	var err error
	if m.manifest, err = decodeManifest(text); err != nil {
		return err
	}
	again, err := m.manifest.canonical()
	if err != nil {
		return err
	}
	if !bytes.Equal(again, text) {
		return fmt.Errorf("%w: it is not in canonical form; build the image with wherry fn build", ErrManifest)
	}
	return nil
}
