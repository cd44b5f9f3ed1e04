package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listener is a test that keeps what is said to it.
type listener struct {
	testing.TB
	said string
}

func (l *listener) Errorf(format string, args ...any) { l.said += fmt.Sprintf(format, args...) }
func (l *listener) Fatalf(format string, args ...any) {
	l.Errorf(format, args...)
	panic(l)
}

func said(t *testing.T, path, got string, rewrite bool) string {
	l := &listener{TB: t}
	defer func() {
		if r := recover(); r != nil && r != any(l) {
			panic(r)
		}
	}()
	check(l, path, []byte(got), rewrite)
	return l.said
}

func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if s := said(t, path, "1\n2\n", true); s != "" {
		t.Error(s)
	}
	if s := said(t, path, "1\n2\n", false); s != "" {
		t.Error(s)
	}
	if s := said(t, path, "1\n3\n", false); !strings.Contains(s, "-rewrite") || !strings.Contains(s, path) || !strings.Contains(s, "3") {
		t.Errorf("of another content it says %q", s)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "1\n2\n" {
		t.Errorf("the file is %q, %v now", b, err)
	}
	CheckHex(t, "testdata/seven.hex", []byte("7777777"))
}

func TestNoFile(t *testing.T) {
	l := &listener{TB: t}
	defer func() {
		if r := recover(); r != any(l) || !strings.Contains(l.said, "no such file") || !strings.Contains(l.said, "-rewrite") {
			t.Errorf("%v, %q", r, l.said)
		}
	}()
	check(l, filepath.Join(t.TempDir(), "none"), nil, false)
}
