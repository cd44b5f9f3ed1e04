package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/internal/ports"
)

// readmeBlocks are the shell commands of README's section "Your own data": what is typed in each terminal.
func readmeBlocks(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Your own data\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks [][]string
	for i, block := range strings.Split(section, "```") {
		if i%2 == 0 {
			continue
		}
		var lines []string
		for line := range strings.Lines(block) {
			if line, _, _ = strings.Cut(line, " #"); strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "go ") { // the program is built already
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		blocks = append(blocks, lines)
	}
	if len(blocks) != 2 || !strings.HasPrefix(blocks[0][len(blocks[0])-1], "wherry node ") {
		t.Fatalf("README's section is to have two blocks, the first ending with the node; it has %q", blocks)
	}
	return blocks
}

// readmeWant is the answer of the section's last command: requests of each path with a status of at least 500.
func readmeWant(t *testing.T, column int, match func(row []string) bool) (want string) {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "examples", "tally", "access.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	counts := map[string]int{}
	r := csv.NewReader(file)
	for n := 0; ; n++ {
		row, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 && match(row) {
			counts[row[column]]++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		want += fmt.Sprintf("%s,%d\n", key, counts[key])
	}
	return want
}

// readmeShell runs lines of shell in a folder that has a copy of the example's, and where wherry is this program.
func readmeShell(t *testing.T) func(ctx context.Context, lines ...string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples", "tally"), os.DirFS(filepath.Join("..", "..", "examples", "tally"))); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin") // where go install would put it
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "wherry"), fmt.Appendf(nil, "#!/bin/sh\nWHERRY_TEST_RUN=1 exec %q \"$@\"\n", os.Args[0]), 0o755); err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, lines ...string) *exec.Cmd {
		cmd := selfUnder(ctx, []string{"sh", "-ec", strings.Join(lines, "\n")})
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_CONFIG_HOME=")
		return cmd
	}
}

// TestTallyReadme types the command of the example's own README.
func TestTallyReadme(t *testing.T) {
	if _, err := cbuild.FindTools(); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "tally", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "\n```\n")
	command, _, _ := strings.Cut(block, "\n```\n")
	shell := readmeShell(t)
	want := "path,n\n" + readmeWant(t, 2, func(row []string) bool { return row[3] >= "500" })
	if got := must(t, shell(t.Context(), command)); got != want {
		t.Errorf("%s says\n%s\nthe file has\n%s", command, got, want)
	}
}

// movePort has commands use another port than the one that is printed.
func movePort(blocks [][]string, port int) {
	for _, lines := range blocks {
		for i := range lines {
			lines[i] = strings.ReplaceAll(lines[i], ":7000", ":"+strconv.Itoa(port))
		}
	}
}

// TestReadme types README's commands, in a copy of the example's folder, and holds the answers against the file.
func TestReadme(t *testing.T) {
	if _, err := cbuild.FindTools(); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	shell := readmeShell(t)
	list, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	blocks := readmeBlocks(t)
	movePort(blocks, list[0])
	last := len(blocks[0]) - 1
	must(t, shell(t.Context(), blocks[0][:last]...))
	ctx, cancel := context.WithCancel(context.Background())
	waitForNode(t, cancel, shell(ctx, "exec "+blocks[0][last]))
	got := must(t, shell(t.Context(), blocks[1]...))
	for what, want := range map[string]string{
		"countby": "key,n\n" + readmeWant(t, 3, func([]string) bool { return true }),
		"tally":   "path,n\n" + readmeWant(t, 2, func(row []string) bool { return row[3] >= "500" }),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("README's commands say\n%s\n%s of the file is\n%s", got, what, want)
		}
	}
}

// TestNativePage types the commands of docs/native.md that sign a function and run it as native code, on the node and the dataset of README.
func TestNativePage(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("workers have run on amd64 only")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "native.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "\n## Who may send it\n")
	_, block, _ = strings.Cut(block, "\n```\n")
	block, _, _ = strings.Cut(block, "\n```\n")
	lines := strings.Split(block, "\n")
	at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "wherry node ") })
	if at < 0 || at+2 != len(lines) {
		t.Fatalf("the page is to start a node and then run a function there: %q", lines)
	}
	readme := readmeBlocks(t)
	list, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	movePort(readme, list[0])
	shell := readmeShell(t)
	crossBuild(t, "../wherry-llvm", runtime.GOARCH, filepath.Join(shell(t.Context()).Dir, "bin", "wherry-llvm"))
	last := len(readme[0]) - 1
	must(t, shell(t.Context(), append(readme[0][:last:last], lines[:at]...)...))
	node, _, _ := strings.Cut(lines[at], "…")
	ctx, cancel := context.WithCancel(context.Background())
	waitForNode(t, cancel, shell(ctx, "exec "+node+strings.TrimPrefix(readme[0][last], "wherry node")))
	got := must(t, shell(t.Context(), append(readme[1][:2:2], lines[at+1]+" --format csv 2>&1")...))
	if want := "path,n\n" + readmeWant(t, 2, func(row []string) bool { return row[3] >= "500" }); !strings.Contains(got, want) || !strings.Contains(got, "a: as llvm-bitcode for ") {
		t.Errorf("the page's commands say\n%s\nwant\n%s", got, want)
	}
}
