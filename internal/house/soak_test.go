package house

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// soak runs scripts/soak.sh for a second on one package of testdata/soak.
func soak(t *testing.T, pkg string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "../../scripts/soak.sh")
	cmd.Env = append(os.Environ(), "FUZZ_SECONDS=0", "SIM_SECONDS=1", "PACKAGES=./internal/house/testdata/soak/"+pkg)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestSeedsAreTaken: a soak prints its seeds, another one each round, and fails
// if a simulation did not take them.
func TestSeedsAreTaken(t *testing.T) {
	out, err := soak(t, "fresh")
	seeds := regexp.MustCompile(`testdata/soak/fresh: seed \d+`).FindAllString(out, -1)
	if err != nil || len(seeds) == 0 {
		t.Errorf("a simulation that takes its seed: %v\n%s", err, out)
	}
	for i := 1; i < len(seeds); i++ {
		if seeds[i] == seeds[i-1] {
			t.Errorf("two rounds with one seed: %s", out)
		}
	}
	out, err = soak(t, "fixed")
	if err == nil || !regexp.MustCompile(`was run with -rapid.seed=\d+, and these did not take the seed: TestSimFixed\n`).MatchString(out) {
		t.Errorf("a simulation that does not: %v\n%s", err, out)
	}
}

// TestFindingsAreShown, with the seed, and not what passed.
func TestFindingsAreShown(t *testing.T) {
	out, err := soak(t, "failing")
	defer os.RemoveAll("testdata/soak/failing/testdata") // where rapid keeps what it found
	if err == nil || !strings.Contains(out, "found with") || !strings.Contains(out, "-rapid.seed=") || !strings.Contains(out, "seeds from ") || strings.Contains(out, "test #10 start") {
		t.Errorf("%v\n%s", err, out)
	}
}
