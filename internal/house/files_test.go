package house

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// maxFileBytes keeps clones small. What is larger is made by a program in the tree, or fetched.
const maxFileBytes = 2 << 20

// marker finds promises instead of work. (Spelt so that it does not find itself.)
var marker = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)

// link finds the targets of inline Markdown links and images.
var link = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)`)

// ours reports whether a file's text is written here: fuzzing corpora and golden
// files hold what machines made.
func ours(p string) bool {
	return !strings.Contains(p, "testdata/") && path.Base(p) != "go.sum"
}

func TestNoMarkers(t *testing.T) {
	r := loaded(t)
	for _, p := range r.paths {
		if !ours(p) {
			continue
		}
		text := r.text(t, p)
		if binary(text) {
			continue
		}
		for i, l := range strings.Split(string(text), "\n") {
			if m := marker.FindString(l); m != "" {
				t.Errorf("%s:%d: %s; do it, or write down as a known gap what is missing and why", p, i+1, m)
			}
		}
	}
}

// linkTargets are a Markdown text's relative link targets, code left out.
func linkTargets(text string) []string {
	var targets []string
	fenced := false
	for l := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(l); strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~") {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		l = regexp.MustCompile("`[^`]*`").ReplaceAllString(l, "")
		for _, m := range link.FindAllStringSubmatch(l, -1) {
			u, err := url.Parse(m[1])
			if err != nil || u.Scheme != "" || u.Host != "" || u.Path == "" {
				continue
			}
			targets = append(targets, u.Path)
		}
	}
	return targets
}

func TestLinks(t *testing.T) {
	r := loaded(t)
	for _, p := range r.paths {
		if path.Ext(p) != ".md" || !ours(p) {
			continue
		}
		for _, target := range linkTargets(string(r.text(t, p))) {
			at := path.Join(path.Dir(p), target)
			if strings.HasPrefix(target, "/") {
				at = path.Clean(strings.TrimPrefix(target, "/"))
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(at))); err != nil {
				t.Errorf("%s: links to %s, which is not there", p, target)
			}
		}
	}
}

func TestLinkTargets(t *testing.T) {
	const text = "[a](docs/a.md#part) ![b](<b c.png>) [c](b.png \"title\") [d](https://example.org/x) [e](#here)\n" +
		"`[f](code.md)`\n```\n[g](fenced.md)\n```\n[h](mailto:x@example.org) [i](../i.md)\n"
	want := "docs/a.md b.png ../i.md"
	if got := strings.Join(linkTargets(text), " "); got != want {
		t.Errorf("found %q, want %q", got, want)
	}
}

// misplaced is the first flag of a go test command that the go command does not know and that stands before the package, "" if
// none does. The go command takes the package for an argument of the test then.
func misplaced(command string) string {
	known := regexp.MustCompile(`^-(bench|benchmem|count|cover|cpu|fuzz|fuzztime|list|p|pgo|race|run|short|tags|timeout|v)(=|$)`)
	for _, word := range strings.Fields(command) {
		switch {
		case strings.HasPrefix(word, "./"):
			return ""
		case strings.HasPrefix(word, "-") && !known.MatchString(word):
			return word
		}
	}
	return ""
}

// TestCommandsInDocuments: whoever copies a go test line runs what it says.
func TestCommandsInDocuments(t *testing.T) {
	r := loaded(t)
	command := regexp.MustCompile("go test [^`\n]*")
	found := 0
	for _, p := range r.paths {
		if path.Ext(p) != ".md" || !ours(p) {
			continue
		}
		for _, c := range command.FindAllString(string(r.text(t, p)), -1) {
			found++
			if flag := misplaced(c); flag != "" {
				t.Errorf("%s: %q: %s must stand after the package, or the go command does not find that", p, c, flag)
			}
		}
	}
	if found == 0 {
		t.Error("no document has a go test line: this looks for nothing")
	}
	if misplaced("go test -run X -seed=1 ./a") != "-seed=1" || misplaced("go test -tags t -run X ./a -seed=1") != "" {
		t.Error("flags are misjudged")
	}
}

// committed lists the files git tracks, or every file where there is no git.
func committed(t *testing.T, r tree) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Logf("git ls-files: %v; looking at every file instead", err)
		return r.paths
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func TestFileSizes(t *testing.T) {
	for _, p := range committed(t, loaded(t)) {
		info, err := os.Lstat(filepath.Join(root, filepath.FromSlash(p)))
		if err != nil {
			continue // deleted, and not committed yet
		}
		if info.Size() > maxFileBytes {
			t.Errorf("%s: %d bytes, at most %d", p, info.Size(), maxFileBytes)
		}
	}
}

func TestLoad(t *testing.T) {
	files := fstest.MapFS{
		"go.mod":            {Data: []byte("module m\n")},
		"a/a.go":            {Data: []byte("package a\n")},
		"a/a_test.go":       {Data: []byte("package a_test\n")},
		"a/testdata/b.go":   {Data: []byte("not Go")},
		"guest/go.mod":      {Data: []byte("module guest\n")},
		"guest/sub/main.go": {Data: []byte("not Go")},
		"bin/c.go":          {Data: []byte("not Go")},
		"a/broken.go":       {Data: []byte("func")},
		"gen.go":            {Data: []byte("// Code generated by x. DO NOT EDIT.\n\npackage m\n")},
	}
	r, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range r.sources {
		got = append(got, fmt.Sprintf("%s %s test=%v made=%v", s.path, s.pkg, s.test, s.made))
	}
	want := "a/a.go ./a test=false made=false|a/a_test.go ./a test=true made=false|gen.go . test=false made=true"
	if strings.Join(got, "|") != want {
		t.Errorf("parsed %q, want %q", strings.Join(got, "|"), want)
	}
	if len(r.broken) != 1 {
		t.Errorf("files that do not parse: %v, want one", r.broken)
	}
	if len(r.paths) != len(files)-1 {
		t.Errorf("listed %v", r.paths)
	}
}
