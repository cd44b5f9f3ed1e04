package image

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// MaxSignatures bounds the signatures of one image: a few teams and a few
// generations of their keys.
const MaxSignatures = 16

const (
	signatureHeadBytes = 16
	signatureBytes     = 8 + ed25519.PublicKeySize + ed25519.SignatureSize
	algorithmEd25519   = 1
	signaturesMagic    = "WFNSIGNS"
	// signatureContext keeps a signature under an image from being one under
	// anything else that the same key signs.
	signatureContext = "wherry function image, signature 1\x00"
)

// Signature is one key's signature of an image's identity.
type Signature struct {
	Key   ed25519.PublicKey
	Value []byte // ed25519.SignatureSize bytes
}

var (
	// ErrSignature says that a signature is not by the key it names.
	ErrSignature = errors.New("image: bad signature")
	// ErrUntrusted says that no trusted key signed the image.
	ErrUntrusted = errors.New("image: not signed by a trusted key")
)

// signedText is what a signature signs.
func signedText(id ID) []byte { return append([]byte(signatureContext), id[:]...) }

// Sign returns the image with key's signature added. Its identity stays the same.
// Signing again with the same key changes nothing.
func (m *Image) Sign(key ed25519.PrivateKey) (*Image, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("image: an ed25519 private key has %d bytes, this one %d", ed25519.PrivateKeySize, len(key))
	}
	s := Signature{Key: key.Public().(ed25519.PublicKey), Value: ed25519.Sign(key, signedText(m.id))}
	out := *m
	out.signatures = slices.DeleteFunc(cloneSignatures(m.signatures), func(o Signature) bool { return o.Key.Equal(s.Key) })
	if len(out.signatures) >= MaxSignatures {
		return nil, fmt.Errorf("image: it has %d signatures already, at most %d are allowed", len(out.signatures), MaxSignatures)
	}
	out.signatures = append(out.signatures, s)
	slices.SortFunc(out.signatures, compareSignatures)
	if out.Size() > MaxBytes {
		return nil, fmt.Errorf("%w: signed it has %d bytes, at most %d are allowed", ErrTooLarge, out.Size(), MaxBytes)
	}
	out.copyID = sha256.Sum256(out.Encode())
	return &out, nil
}

// Unsigned returns the image without signatures.
func (m *Image) Unsigned() *Image {
	out := *m
	out.signatures, out.copyID = nil, m.id
	return &out
}

// Signatures returns copies of all signatures, unverified, in the order of their keys.
func (m *Image) Signatures() []Signature { return cloneSignatures(m.signatures) }

// Verify returns the first of trusted that signed the image. The error wraps
// ErrUntrusted if none did, and ErrSignature if one is named whose signature
// does not hold.
func (m *Image) Verify(trusted []ed25519.PublicKey) (ed25519.PublicKey, error) {
	for _, key := range trusted {
		if len(key) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("image: a trusted key has %d bytes, ed25519 keys have %d", len(key), ed25519.PublicKeySize)
		}
		for _, s := range m.signatures {
			if !key.Equal(s.Key) {
				continue
			}
			if !ed25519.Verify(key, signedText(m.id), s.Value) {
				return nil, fmt.Errorf("%w: image %s (%s) names key %x, which did not sign it", ErrSignature, m.manifest.Name, m.id.Short(), []byte(key))
			}
			return slices.Clone(key), nil
		}
	}
	return nil, fmt.Errorf("%w: image %s (%s) has %d signatures, %d keys are trusted", ErrUntrusted, m.manifest.Name, m.id.Short(), len(m.signatures), len(trusted))
}

func compareSignatures(a, b Signature) int { return bytes.Compare(a.Key, b.Key) }

func cloneSignatures(in []Signature) []Signature {
	var out []Signature
	for _, s := range in {
		out = append(out, Signature{Key: slices.Clone(s.Key), Value: slices.Clone(s.Value)})
	}
	return out
}

// signaturesBytes is the length of a section of n signatures; none at all if n is 0.
func signaturesBytes(n int) int {
	if n == 0 {
		return 0
	}
	return signatureHeadBytes + n*signatureBytes
}

func appendSignatures(b []byte, list []Signature) []byte {
	if len(list) == 0 {
		return b
	}
	le := binary.LittleEndian
	start := len(b)
	b = append(b, signaturesMagic...)
	b = le.AppendUint32(b, uint32(len(list)))
	b = le.AppendUint32(b, 0)
	for _, s := range list {
		b = le.AppendUint32(b, algorithmEd25519)
		b = le.AppendUint32(b, 0)
		b = append(append(b, s.Key...), s.Value...)
	}
	le.PutUint32(b[start+12:], signaturesSum(b[start:]))
	return b
}

// signaturesSum is a CRC-32C of the section's signatures. It tells a damaged file from a forged
// one; the signatures themselves need no more.
func signaturesSum(section []byte) uint32 {
	return crc32.Checksum(section[signatureHeadBytes:], crc32.MakeTable(crc32.Castagnoli))
}

func parseSignatures(b []byte) ([]Signature, error) {
	if len(b) == 0 {
		return nil, nil
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: signatures: %s", ErrFormat, fmt.Sprintf(format, args...))
	}
	if len(b) < signatureHeadBytes || string(b[:len(signaturesMagic)]) != signaturesMagic {
		return nil, bad("%d bytes that are no signatures follow the content", len(b))
	}
	le := binary.LittleEndian
	count := le.Uint32(b[8:])
	if count == 0 || count > MaxSignatures {
		return nil, bad("%d of them, 1 to %d are allowed", count, MaxSignatures)
	}
	if len(b) != signaturesBytes(int(count)) {
		return nil, bad("%d of them in %d bytes", count, len(b))
	}
	if got, want := signaturesSum(b), le.Uint32(b[12:]); got != want {
		return nil, fmt.Errorf("%w: signatures: CRC-32C is %08x, the file says %08x", ErrChecksum, got, want)
	}
	var list []Signature
	for at := signatureHeadBytes; at < len(b); at += signatureBytes {
		one := b[at : at+signatureBytes]
		if algorithm, zero := le.Uint32(one), le.Uint32(one[4:]); algorithm != algorithmEd25519 || zero != 0 {
			return nil, bad("unknown algorithm %d", algorithm)
		}
		s := Signature{Key: bytes.Clone(one[8 : 8+ed25519.PublicKeySize]), Value: bytes.Clone(one[8+ed25519.PublicKeySize:])}
		if len(list) > 0 && compareSignatures(list[len(list)-1], s) >= 0 {
			return nil, bad("not sorted by key, each once")
		}
		list = append(list, s)
	}
	return list, nil
}
