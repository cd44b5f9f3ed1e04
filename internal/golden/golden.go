// Package golden compares what tests make with files of earlier versions, byte by byte: a change of
// a format is a decision, with a new version of it, never an accident. go test -rewrite writes the
// files anew.
package golden

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// Check fails the test if a file holds something else.
func Check(t testing.TB, path string, got []byte) {
	t.Helper()
	check(t, path, got, *rewrite)
}

// CheckHex is Check for what people cannot read: the file is a dump of it.
func CheckHex(t testing.TB, path string, got []byte) {
	t.Helper()
	Check(t, path, []byte(hex.Dump(got)))
}

func check(t testing.TB, path string, got []byte, rewrite bool) {
	t.Helper()
	if rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -rewrite makes it)", err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s is not what is made now (go test -rewrite writes it anew; a format that changed needs a new version):\n%s",
			path, cmp.Diff(string(want), string(got)))
	}
}
