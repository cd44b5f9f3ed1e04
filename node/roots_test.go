package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/dataset"
)

// TestPatternWhileReloaded: a pattern is looked up in the data roots before or after a change of them. The race detector looks on.
func TestPatternWhileReloaded(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	if err := os.WriteFile(filepath.Join(dirs[0], "a.csv"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := openRoots(dirs)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		for i := range 200 {
			next, err := openRoots(dirs[:1+i%2])
			if err != nil {
				t.Error(err)
				return
			}
			r.replace(next)
		}
	}()
	for over := false; !over; {
		select {
		case <-changed:
			over = true
		default:
		}
		if _, err := r.glob("*.none"); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), dirs[0]) {
			t.Errorf("%v, want one that names the roots", err)
		}
		if found, err := r.glob("*.csv"); err != nil || len(found) != 1 {
			t.Errorf("%d files, %v", len(found), err)
		}
	}
}
