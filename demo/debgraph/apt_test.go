package debgraph_test

import (
	"bytes"
	"context"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/demo/debgraph"
	"github.com/wherry-fabric/wherry/demo/debgraph/apt"
)

// askTime bounds a question to apt-cache; some are about all of the archive.
const askTime = 4 * time.Minute

// aptGraph is this machine's archive, whichever it is, read by our rules. What is
// tested here is the reading: the built-in file has tests of its own.
func aptGraph(t *testing.T) (g *debgraph.Graph, versions map[string]string) {
	t.Helper()
	if _, err := exec.LookPath("apt-cache"); err != nil {
		t.Skip("apt-cache is not here to compare with: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), askTime)
	defer cancel()
	index, err := apt.Index(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(index, []byte("\nPackage: ")) < 1000 {
		t.Skip("apt knows no archive here: run apt-get update first")
	}
	g, err = debgraph.BuildIndex(bytes.NewReader(index), runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	versions = make(map[string]string, g.Len())
	name := ""
	for line := range strings.Lines(string(index)) {
		if s, ok := strings.CutPrefix(line, "Package: "); ok {
			name = strings.TrimSpace(s)
		} else if s, ok := strings.CutPrefix(line, "Version: "); ok {
			versions[name] = strings.TrimSpace(s)
		}
	}
	return g, versions
}

// choice is one alternative as apt-cache shows it.
type choice struct {
	target    string
	virtual   bool     // apt shows it in angle brackets
	op        string   // with version, if the dependency has a constraint
	version   string   //
	providers []string // other packages that apt lists as solutions
}

// depends asks apt-cache what packages depend on and returns, for each package
// that it speaks of, its dependencies as groups of alternatives.
func depends(t *testing.T, args ...string) map[string][][]choice {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), askTime)
	defer cancel()
	out, err := apt.Ask(ctx, append([]string{"depends", "--important", "-o", "APT::Cache::ShowVersion=true"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][][]choice)
	name, open := "", false
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		groups := all[name]
		switch {
		case strings.HasPrefix(line, "    "):
			g := groups[len(groups)-1]
			g[len(g)-1].providers = append(g[len(g)-1].providers, strings.TrimSpace(line))
		case line[0] != ' ':
			name, open = line, false
			all[name] = nil
		default:
			_, text, ok := strings.Cut(line, "Depends: ")
			if !ok {
				t.Fatalf("apt-cache depends printed %q", line)
			}
			c := parseChoice(text)
			if open {
				groups[len(groups)-1] = append(groups[len(groups)-1], c)
			} else {
				all[name] = append(groups, []choice{c})
			}
			open = line[1] == '|'
		}
	}
	return all
}

func parseChoice(text string) choice {
	name, constraint, _ := strings.Cut(text, " (")
	op, version, _ := strings.Cut(strings.TrimSuffix(constraint, ")"), " ")
	bare := strings.TrimSuffix(strings.TrimPrefix(name, "<"), ">")
	return choice{target: bare, virtual: bare != name, op: op, version: version}
}

// taken applies the rule that BuildIndex documents to what apt-cache shows.
func taken(g *debgraph.Graph, versions map[string]string, self string, groups [][]choice) []string {
	var out []string
	for _, alts := range groups {
		for _, c := range alts {
			var to []string
			name, anyArch := strings.CutSuffix(c.target, ":any")
			_, real := g.ID(name)
			if real && !c.virtual && meets(versions[name], c) || anyArch && slices.Contains(c.providers, name) {
				to = []string{name} // the package of that name goes before those that provide it
			} else {
				for _, p := range c.providers {
					if _, ok := g.ID(p); ok {
						to = append(to, p)
					}
				}
			}
			if len(to) > 0 {
				out = append(out, to...)
				break
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return slices.DeleteFunc(out, func(s string) bool { return s == self })
}

func meets(version string, c choice) bool {
	n := debgraph.CompareVersions(version, c.version)
	switch c.op {
	case "<<":
		return n < 0
	case "<=":
		return n <= 0
	case "=":
		return n == 0
	case ">=":
		return n >= 0
	case ">>":
		return n > 0
	}
	return true
}

func rowNames(g *debgraph.Graph, ids []uint32) []string {
	var out []string
	for _, v := range ids {
		out = append(out, g.Names[v])
	}
	return out
}

// probes are packages of every sort: with virtual needs, with alternatives,
// with many needs and with none.
var probes = strings.Fields(`adduser apache2 apt bash build-essential cloud-init curl debconf default-jre exim4-daemon-light
	emacs firefox-esr fonts-dejavu-core gcc gem-dev gimp git gnome init kde-full libflatpak0 libreoffice libsystemd0
	mailutils node-acorn openssh-server perl postgresql python3-django python3-numpy r-base rustc sudo task-desktop
	texlive-full vim wordpress xfce4 xserver-xorg zlib1g`)

func present(g *debgraph.Graph) []string {
	return slices.DeleteFunc(slices.Clone(probes), func(p string) bool {
		_, ok := g.ID(p)
		return !ok
	})
}

// TestGraphAgreesWithApt asks apt-cache depends about every package of the archive and applies the
// documented rule to its answers: every row of our graph must be the same, then so are
// closures, and rdepends must know everybody who names a package.
func TestGraphAgreesWithApt(t *testing.T) {
	g, versions := aptGraph(t)
	roots := present(g)
	if len(roots) < 20 {
		t.Fatalf("only %d of the probed packages exist here", len(roots))
	}
	// In a short run only what the probes draw in, else everything, as much as fits on a command line at a time.
	questions := [][]string{append([]string{"--recurse"}, roots...)}
	if !testing.Short() {
		questions = slices.Collect(slices.Chunk(g.Names, 16<<10))
	}
	rows := make(map[string][]string, g.Len())
	directly := make(map[string][]string) // who names a real package, by its name
	different := 0
	for _, question := range questions {
		for p, groups := range depends(t, question...) {
			v, ok := g.ID(p)
			if !ok {
				continue // a virtual package, which apt lists as if it were one
			}
			rows[p] = taken(g, versions, p, groups)
			if got := rowNames(g, g.Fwd.Row(v)); !slices.Equal(got, rows[p]) && different < 20 {
				different++
				t.Errorf("%s: only here %q, only in apt-cache's answer %q", p, missing(got, rows[p]), missing(rows[p], got))
			}
			for _, alts := range groups {
				for _, c := range alts {
					if !c.virtual {
						directly[c.target] = append(directly[c.target], p)
					}
				}
			}
		}
	}
	if !testing.Short() && len(rows) != g.Len() {
		t.Errorf("apt-cache spoke of %d packages of %d", len(rows), g.Len())
	}
	for _, root := range roots {
		want := walk(rows, root)
		v, _ := g.ID(root)
		if got := rowNames(g, g.Closure(v, debgraph.Needs)); !slices.Equal(got, want) {
			t.Errorf("%s draws in %d packages, by apt-cache %d", root, len(got), len(want))
		}
	}
	for p, rdepends := range reverseDepends(t, roots) {
		if lost := missing(directly[p], rdepends); len(lost) > 0 {
			t.Errorf("apt-cache rdepends %s does not know %q", p, lost)
		}
	}
	t.Logf("%d rows, %d closures, %d lists of dependents compared", len(rows), len(roots), len(roots))
}

// walk lists what root draws in, by apt-cache's rows.
func walk(rows map[string][]string, root string) []string {
	seen := map[string]bool{root: true}
	queue := []string{root}
	for i := 0; i < len(queue); i++ {
		for _, p := range rows[queue[i]] {
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	slices.Sort(queue[1:])
	return queue[1:]
}

// missing lists what is in a and not in b.
func missing(a, b []string) []string {
	in := make(map[string]bool, len(b))
	for _, s := range b {
		in[s] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return in[s] })
}

// reverseDepends asks apt-cache rdepends who names each package.
func reverseDepends(t *testing.T, packages []string) map[string][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), askTime)
	defer cancel()
	out, err := apt.Ask(ctx, append([]string{"rdepends", "--important"}, packages...)...)
	if err != nil {
		t.Fatal(err)
	}
	namers := make(map[string][]string)
	target := ""
	for line := range strings.Lines(string(out)) {
		if n := strings.Trim(line, " |\n"); line[0] == ' ' {
			namers[target] = append(namers[target], n)
		} else if n != "Reverse Depends:" {
			target = n
		}
	}
	if len(namers) < len(packages)/2 {
		t.Fatalf("apt-cache rdepends spoke of %d packages of %d", len(namers), len(packages))
	}
	return namers
}

// TestVersionsAgreeWithDpkg holds our order of versions against dpkg's, for neighbours in the archive.
func TestVersionsAgreeWithDpkg(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("dpkg is not here to compare with: ", err)
	}
	for _, pair := range [][2]string{
		{"1.0~rc1", "1.0"}, {"2.36-9+deb12u9", "2.36-9+deb12u10"}, {"1:0.1", "9.9"}, {"1.2.3a", "1.2.3+"}, {"1.0-1", "1.0-1+b1"},
		{"20.20.2-1nodesource1", "20.20.2-1"}, {"1.00", "1.0"}, {"0-0", "0"}, {"1.0.0~", "1.0.0~~"}, {"3.11.2-1+b1", "3.11~"},
	} {
		op := map[int]string{-1: "lt", 0: "eq", 1: "gt"}[min(1, max(-1, debgraph.CompareVersions(pair[0], pair[1])))]
		if err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", pair[0], op, pair[1]).Run(); err != nil {
			t.Errorf("we say %s %s %s, dpkg does not: %v", pair[0], op, pair[1], err)
		}
	}
}
