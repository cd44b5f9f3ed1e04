package wasm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/internal/codecache"
)

// TestStagedIsOld: another module's code that was staged is not taken for what was compiled, however coarse
// the file system's clock is; what is written in its place is.
func TestStagedIsOld(t *testing.T) {
	dir := t.TempDir()
	s := &stage{dir: dir, inner: dir}
	tick := time.Now().Truncate(10 * time.Second)
	for _, name := range []string{"a", "c"} {
		if err := s.put(codecache.Entry{Name: name, Data: []byte("staged")}); err != nil {
			t.Fatal(err)
		}
		for _, made := range []string{"b", name} {
			path := filepath.Join(dir, made)
			if err := os.WriteFile(path, []byte("made"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, tick, tick); err != nil {
				t.Fatal(err)
			}
			if e, ok := s.newest(s.files()); !ok || e.Name != made || string(e.Data) != "made" {
				t.Errorf("beside %s: %q (%q, %v) was compiled, want %s", name, e.Name, e.Data, ok, made)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
}
