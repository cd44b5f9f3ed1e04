package node

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/wasm"
)

// TestLimitsThatMessagesName: each limit that an error's text names can be set in the configuration, by that name.
func TestLimitsThatMessagesName(t *testing.T) {
	all := (&limits{}).byName()
	camel := regexp.MustCompile(`\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b`)
	single := regexp.MustCompile(`Limits\.([A-Z]\w+)`)
	seen := map[string]bool{}
	for _, dir := range []string{"fabric", "rpc", "inject", "inject/travel", "inject/wasm", "node", "pool/component"} {
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				if strings.Contains(text, "Limits.") || strings.Contains(text, "raise ") {
					names = camel.FindAllString(text, -1)
				}
				for _, m := range single.FindAllStringSubmatch(text, -1) {
					names = append(names, m[1])
				}
				for _, name := range names {
					if _, err := findLimit(all, name); err != nil && !strings.Contains(err.Error(), "the name of several") && !strings.Contains(err.Error(), "is set by the key") {
						t.Errorf("%s: %q names a limit that cannot be set: %v", file, text, err)
					}
					seen[name] = true
				}
				return true
			})
		}
	}
	for _, name := range []string{"MaxInstances", "MemoryBytes", "HeldRuns", "PrincipalHeldBytes", "Queued", "EndpointsPerPrincipal"} {
		if !seen[name] {
			t.Errorf("%s was not found in any text", name)
		}
	}
}

func TestSetLimits(t *testing.T) {
	c := Config{LimitsByName: map[string]string{"MaxInstances": "7", "memory_bytes": "8GiB", "Limits.HeldRuns": "9", "calls.held_bytes": "1GiB",
		"fabric.op_time": "7s", "Forks": "5", "heap_bytes": "2MiB"}}
	l, err := c.setLimits()
	if err != nil {
		t.Fatal(err)
	}
	if l.engine.MaxInstances != 7 || l.engine.MemoryBytes != 8<<30 || l.functions.HeldRuns != 9 || l.calls.HeldBytes != 1<<30 ||
		l.fabric.OpTime != 7*time.Second || l.ceilings.Forks != 5 || l.ceilings.HeapBytes != 2<<20 {
		t.Errorf("%+v", l)
	}
	for _, tt := range []struct{ name, value, want string }{
		{"held_bytes", "1GiB", "say calls.held_bytes or functions.held_bytes"},
		{"max_instance", "1", `did you mean "max_instances"`},
		{"lent_bytes", "1GiB", "is set by the key memory"},
		{"max_instances", "many", `"many" is not a number`},
		{"max_instances", "0", "more than 0"},
		{"max_instances", "-1", "is not a number"},
		{"fabric.op_time", "7", "is not a time"},
		{"Forks", "8GiB", "more than it can be"},
		{"EndpointsPerPrincipal", "8192", "between 1 and Endpoints, which is 4096"},
	} {
		c := Config{LimitsByName: map[string]string{tt.name: tt.value}}
		if _, err := c.setLimits(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %s: %v, want …%s…", tt.name, tt.value, err, tt.want)
		}
	}
}

// TestFunctionMemory: without a limit that says otherwise, functions are charged for no more than the machine has.
func TestFunctionMemory(t *testing.T) {
	const gib = 1 << 30
	least := wasm.LeastMemory(abi.Limits{})
	for _, c := range []struct {
		set      uint64
		native   bool
		free     Bytes
		ofWasm   uint64
		ofNative uint64
	}{
		{0, false, 0, 4 * gib, 0},
		{0, false, 64 * gib, 4 * gib, 0},
		{0, false, 5 * gib, 5 * gib / 2, 0},
		{0, true, 64 * gib, 2 * gib, 2 * gib},
		{0, false, 1, least, 0},
		{0, true, 1, least, least},
		{3 * gib, false, 1, 3 * gib, 0},
	} {
		if w, n := (engineLimits{MemoryBytes: c.set}).memory(c.native, c.free, abi.Limits{}); w != c.ofWasm || n != c.ofNative {
			t.Errorf("%+v: %d and %d", c, w, n)
		}
	}
	for _, c := range []struct {
		set    uint64
		native bool
		free   Bytes
		each   uint64
	}{{0, false, 0, gib}, {0, false, 64 * gib, gib}, {0, true, 64 * gib, gib / 2}, {0, false, 4 * gib, gib / 2}, {0, false, 1, leastCode}, {5 * gib, true, 1, 5 * gib / 2}} {
		if got := (engineLimits{CodeBytes: c.set}).code(c.native, c.free); got != c.each {
			t.Errorf("%+v: %d bytes of machine code", c, got)
		}
	}
	c := Config{Memory: DefaultMemory, LimitsByName: map[string]string{"request_bytes": "300MiB", "calls.held_bytes": "200MiB"}}
	l, err := c.setLimits()
	if err != nil {
		t.Fatal(err)
	}
	if segments, heap := l.calls.Memory(); segments != 224<<20 || heap < 500<<20 { // docs/operations.md has the former
		t.Errorf("calls may take %v and %v", Bytes(segments), Bytes(heap))
	}
	has, ok := ownMemory()
	if !ok || has < 4*gib {
		t.Skip("not known, or too little, memory")
	}
	if free := c.freeMemory(&l.calls); free > has-DefaultMemory-500<<20 || free < has-DefaultMemory-gib {
		t.Errorf("%v is free of %v, with %v lent and 500 MiB and more that calls may take", free, has, DefaultMemory)
	}
}
