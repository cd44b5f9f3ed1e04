package shell

import (
	"os/exec"
	"testing"
)

// TestQuote: a real shell reads each text back as it was.
func TestQuote(t *testing.T) {
	for _, text := range []string{"", "plain", "two words", "'", "it's", "''", `a"b`, `back\slash`, "$HOME `id` *", "line\nline", "-n"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+Quote(text)).CombinedOutput()
		if err != nil || string(out) != text {
			t.Errorf("%q became %q (%v)", text, out, err)
		}
	}
}
