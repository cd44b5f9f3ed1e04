package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAgain: the gate forgives a test that fails once and then passes three times by itself, and nothing else.
func TestAgain(t *testing.T) {
	root := t.TempDir() // of a checkout that is the script and its package alone
	for from, to := range map[string]string{"../../scripts/gotest.sh": "scripts/gotest.sh", "testdata/again/again_test.go": "again_test.go"} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(root, to)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(root, to), text, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module again\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		fail     string
		forgiven string
		passes   bool
	}{
		{"", "", true},
		{"A:once", "TestA of again", true},
		{"A:once C:once", "TestA|TestC of again", true},
		{"A:always", "", false},
		{"A:once C:always", "", false},
		{"B:panics", "", false},
		{"A:once B:once C:once D:once", "", false},
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "scripts/gotest.sh", "-vet=off", "-count=1", "--", ".")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GOWORK=off", "FAIL="+test.fail, "RUNS="+t.TempDir())
		out, err := cmd.CombinedOutput()
		unsure, _ := os.ReadFile(filepath.Join(root, "bin/unsure"))
		os.Remove(filepath.Join(root, "bin/unsure"))
		if test.passes != (err == nil) || !strings.HasPrefix(string(unsure), test.forgiven) || test.forgiven == "" && len(unsure) > 0 {
			t.Errorf("%q: %v; forgiven: %q\n%s", test.fail, err, unsure, out)
		}
	}
}
