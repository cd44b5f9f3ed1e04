// Package again is what scripts/gotest.sh is tried on: tests that fail as FAIL says, a word for each, the first time or always.
package again

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fails fails test name as often as FAIL says. What has failed once is a file in RUNS.
func fails(t *testing.T, name string) {
	for _, how := range strings.Fields(os.Getenv("FAIL")) {
		mark := filepath.Join(os.Getenv("RUNS"), name)
		_, err := os.Stat(mark)
		switch how {
		case name + ":always":
			t.Fatal("as it was told")
		case name + ":once":
			if err != nil {
				os.WriteFile(mark, nil, 0o600)
				t.Fatal("as it was told")
			}
		case name + ":panics":
			if err != nil {
				os.WriteFile(mark, nil, 0o600)
				panic("as it was told")
			}
		}
	}
}

func TestA(t *testing.T) { fails(t, "A") }
func TestB(t *testing.T) { fails(t, "B") }
func TestC(t *testing.T) { fails(t, "C") }
func TestD(t *testing.T) { fails(t, "D") }
