package xrdma

import (
	"bytes"
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
