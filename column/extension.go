package column

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
)

// Extension is what the 16 bytes of a Bytes type mean. In Arrow it is an extension type: other programs see the bytes at least.
type Extension uint8

// Extensions.
const (
	NoExtension Extension = iota
	UUID                  // the bytes in the order of the text, as RFC 9562 has them
	IP                    // an IPv6 address, the highest byte first; one of IPv4 is ::ffff:a.b.c.d, so that all are in one order
)

const (
	// ExtensionBytes is the width of a Bytes type that can have an Extension.
	ExtensionBytes = 16
	uuidText       = 36
)

// extensions are their text forms, as types.
var extensions = [...]string{UUID: "uuid", IP: "ip"}

// Extended is the type of values that mean e.
func Extended(e Extension) Type { return Type{ID: Bytes, Width: ExtensionBytes, Extension: e} }

// extended finds an extension's type by its name.
func extended(name string) (t Type, ok bool) {
	i := slices.Index(extensions[:], name)
	if i <= 0 {
		return t, false
	}
	return Extended(Extension(i)), true
}

func (e Extension) String() string {
	if int(e) < len(extensions) {
		return extensions[e]
	}
	return fmt.Sprintf("Extension(%d)", uint8(e))
}

// Read reads a value's text form.
func (e Extension) Read(text string) (v [ExtensionBytes]byte, err error) {
	if e == IP {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return v, fmt.Errorf("%.60q is no ip, as in 192.0.2.1 or 2001:db8::1", text)
		}
		return a.As16(), nil
	}
	digits := make([]byte, 0, uuidText)
	for i := range min(len(text), uuidText) {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; !dash || len(text) != uuidText {
			digits = append(digits, text[i])
		} else if text[i] != '-' {
			digits = nil
			break
		}
	}
	if n, err := hex.Decode(v[:], digits[:min(len(digits), 2*ExtensionBytes)]); err != nil || n != ExtensionBytes || len(text) != uuidText && len(text) != 2*ExtensionBytes {
		return [ExtensionBytes]byte{}, fmt.Errorf("%.60q is no uuid, as in 550e8400-e29b-41d4-a716-446655440000", text)
	}
	return v, nil
}

// Append appends the text form of a value, which has 16 bytes.
func (e Extension) Append(b, v []byte) []byte {
	if e == IP {
		return netip.AddrFrom16([ExtensionBytes]byte(v)).Unmap().AppendTo(b)
	}
	for i, part := range [...][]byte{v[:4], v[4:6], v[6:8], v[8:10], v[10:]} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, part)
	}
	return b
}
