package xrdma

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestEcho(t *testing.T) {
	e := newEngine(t)
	c := e.cluster(t, Echo(), blocks(1, 1), [][][]byte{nil}, nil)
	defer c.close()
	for _, payload := range []string{"", "x", strings.Repeat("wherry", 3000)} {
		parts, err := c.invoke([]byte(payload), 0)
		if err != nil || !slices.EqualFunc(parts, [][]byte{[]byte(payload)}, bytes.Equal) {
			t.Errorf("%d bytes come back as %q, %v", len(payload), parts, err)
		}
	}
}

// TestID: a name's identity is that of the image that Lookup gives.
func TestID(t *testing.T) {
	for _, name := range List() {
		id, err := ID(name)
		if img, lerr := Lookup(name); err != nil || lerr != nil || img.ID() != id {
			t.Errorf("%s: %v, %v, %v", name, id, err, lerr)
		}
	}
	if _, err := ID("ecko"); !errors.Is(err, ErrUnknown) {
		t.Errorf("an unknown name: %v", err)
	}
}
