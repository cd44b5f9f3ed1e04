// Package apt asks apt-cache about the archive it knows, and about nothing
// else: what is installed on this machine and how packages are pinned do not
// count, and no cache file is written. The graph's generator and the tests that hold the
// graph against apt's own answers share it.
package apt

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Args are apt-cache's arguments for a question, with what keeps this machine out of the answer.
func Args(question ...string) []string {
	return append([]string{
		"-o", "Dir::State::status=/dev/null",
		"-o", "Dir::Etc::preferences=/dev/null",
		"-o", "Dir::Etc::preferencesparts=/dev/null",
		"-o", "Dir::Cache::pkgcache=",
		"-o", "Dir::Cache::srcpkgcache=",
	}, question...)
}

// Index is the package index, about 50 MB of text; apt-get update makes it new.
func Index(ctx context.Context) ([]byte, error) { return Ask(ctx, "dumpavail") }

// Ask runs apt-cache and returns what it printed. The context bounds it.
func Ask(ctx context.Context, question ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "apt-cache", Args(question...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("apt-cache %s: %w: %s", question[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
