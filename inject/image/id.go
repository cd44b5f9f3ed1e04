package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// IDBytes is the length of an image's identity.
const IDBytes = 32

// shortDigits is how many hex digits Short shows: 48 bits, enough to tell
// apart whatever one operator ever sees.
const shortDigits = 12

// An ID is the identity of an image: the SHA-256 of its content.
type ID [IDBytes]byte

// derivedContext begins what a derived function's identity is made of.
const derivedContext = "wherry derived function 1\n"

// Derived is the identity of the function that is the image's with constants.
func (id ID) Derived(constants []byte) ID {
	return sha256.Sum256(slices.Concat([]byte(derivedContext), id[:], constants))
}

// String is the identity in 64 lower-case hex digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Short is the beginning of String, for people.
func (id ID) Short() string { return id.String()[:shortDigits] }

// IsZero reports whether id names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText is String; it makes an ID readable in JSON.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseID.
func (id *ID) UnmarshalText(text []byte) error {
	v, err := ParseID(string(text))
	if err == nil {
		*id = v
	}
	return err
}

// ParseID reads what String wrote. The short form is not accepted: it does not
// say which image is meant.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*IDBytes {
		return ID{}, fmt.Errorf("image: an identity has %d hex digits, %q has %d characters", 2*IDBytes, clip(s), len(s))
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ID{}, fmt.Errorf("image: identity %q has a character that is no lower-case hex digit", clip(s))
		}
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ID{}, fmt.Errorf("image: identity %q: %w", clip(s), err)
	}
	return id, nil
}

// clip shortens text from outside for an error message.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
