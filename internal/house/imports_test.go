package house

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Patterns: "./x" is our package x, "./x/..." is x and all below it, "./..." all
// of ours, "m/..." a module from outside, below every package under the importer
// itself, and outside whatever is not in the standard library and not ours.
const (
	below   = "<below>"
	outside = "<outside>"
)

// A rule forbids the packages of from (less except) to import to (less but).
type rule struct {
	from, except, to, but []string
	why                   string
}

var (
	transports = []string{"./fabric/shm/...", "./fabric/tcp/...", "./fabric/ucx/...", "./fabric/sim/..."}
	services   = []string{"./inject/...", "./rpc/...", "./pool/...", "./device/..."}
	programs   = []string{"./cmd/...", "./demo/...", "./bench/..."}
)

// forbidden is every import this repository does not have, and why not. Test
// files are free: a test may build what it needs from above.
var forbidden = []rule{
	// Downward only.
	{from: []string{"./internal/..."}, to: []string{"./..."}, but: []string{"./internal/..."},
		why: "internal is the floor: whatever it imported could no longer use it"},
	{from: []string{"./schema/..."}, to: []string{"./...", outside}, but: []string{"./schema/..."},
		why: "a schema is read by people's own programs and by build tools: it costs them the standard library only"},
	{from: []string{"./column/..."}, to: []string{"./...", outside}, but: []string{"./column/...", "./schema"},
		why: "shard tables have columns, and every element reads those: types cost nobody a library"},
	{from: []string{"./query"}, to: []string{"./..."}, but: []string{"./column/...", "./dataset/part", "./schema"},
		why: "planning and putting together are pure: they know columns, not who holds them"},
	{from: []string{"./fabric/..."}, to: []string{"./..."}, but: []string{"./fabric/...", "./internal/..."},
		why: "the four verbs know nothing of what is built from them"},
	{from: []string{"./fabric"}, to: append([]string{"./fabric/fabrictest/..."}, transports...),
		why: "the core is handed its transports; one that it knew by name could do what one from outside the tree cannot"},
	{from: transports, to: []string{"./fabric/..."}, but: []string{"./fabric", below},
		why: "a transport moves frames and needs no other transport; what two share belongs in internal"},
	{from: []string{"./cluster/...", "./dataset/..."}, to: []string{"./..."},
		but: []string{"./cluster/...", "./dataset/...", "./schema/...", "./column/...", "./fabric", "./internal/..."},
		why: "who is there and where data lies is known below the services that ask, over any transport"},
	{from: []string{"./inject/abi/..."}, to: []string{"./...", outside}, but: []string{below},
		why: "the ABI is a contract, not code: it depends on nothing that can change"},
	{from: []string{"./inject/oteltrace"}, to: []string{"./..."}, but: []string{"./inject", "./inject/travel"},
		why: "it makes spans of what the runtime tells it, and knows nothing else"},
	{from: []string{"./inject/..."}, except: []string{"./inject", "./inject/abi/...", "./inject/oteltrace"}, to: []string{"./..."},
		but: []string{below, "./inject/abi/...", "./inject/image/...", "./inject/elf", "./inject/room", "./schema/...", "./sdk", "./internal/..."},
		why: "an engine runs code and reaches the fabric through abi.Host only: so it can be tested, fuzzed and replaced alone"},
	{from: []string{"./inject/..."}, to: []string{"./rpc/...", "./pool/...", "./device/..."},
		why: "services never import each other: inject declares the small interface it needs and node hands it over"},
	{from: []string{"./rpc/..."}, to: []string{"./inject/...", "./pool/...", "./device/..."},
		why: "services never import each other: a program that only makes calls carries no engine and no pool"},
	{from: []string{"./pool/..."}, to: []string{"./inject/...", "./rpc/...", "./device/..."},
		why: "services never import each other: memory must not wait for calls or devices to build"},
	{from: []string{"./device/..."}, to: []string{"./inject/...", "./rpc/...", "./pool/..."},
		why: "services never import each other: a device's data path is segments and doorbells, nothing more"},
	{from: services, to: append([]string{"./node/...", "./cluster/etcd/..."}, transports...),
		why: "a service works over any transport and any store; node chooses them"},
	{from: services, to: programs, why: "programs use services, never the other way round"},
	{from: []string{"./node/..."}, to: programs, why: "a node is a part; programs are made of it"},
	{from: []string{"./..."}, except: []string{"./demo/...", "./cmd/..."}, to: []string{"./demo/..."},
		why: "demo shows and may use everything, so nothing but a command may use it"},
	{from: []string{"./..."}, except: []string{"./bench/...", "./cmd/..."}, to: []string{"./bench/..."},
		why: "bench measures and may use everything, so nothing but a command may use it"},
	{from: []string{"./..."}, except: []string{"./cmd/..."}, to: []string{"./cmd/..."},
		why: "a command line is the last thing to be built; what others need of it belongs below"},
	{from: []string{"./examples/..."}, to: []string{"./internal/..."},
		why: "an example shows what a program outside this repository can write"},

	// Modules with weight or with a place of their own.
	{from: []string{"./..."}, except: []string{"./cluster/etcd/...", "./cmd/wherry"},
		to:  []string{"go.etcd.io/...", "google.golang.org/grpc/..."},
		why: "etcd and gRPC are heavy: a program that uses the library talks to a manager over our own calls"},
	{from: []string{"./..."}, except: []string{"./cmd/wherry", "./cluster/etcd/..."}, to: []string{"./cluster/etcd/..."},
		why: "whoever imports cluster/etcd imports etcd"},
	{from: []string{"./..."}, except: []string{"./cmd/..."}, to: []string{"github.com/spf13/..."},
		why: "a library parses no command lines"},
	{from: []string{"./..."}, except: []string{"./inject/wasm/..."}, to: []string{"github.com/tetratelabs/wazero/..."},
		why: "one package knows the wasm engine, so that its quirks are met in one place and it can be exchanged"},
	{from: []string{"./..."}, except: []string{"./internal/libllvm"}, to: []string{"github.com/ebitengine/purego/..."},
		why: "it makes a program dynamic: only the compiler process loads shared objects"},
	{from: []string{"./..."}, except: []string{"./cmd/wherry-llvm"}, to: []string{"./internal/libllvm"},
		why: "libLLVM gets strangers' code and may crash or run for ever: it lives in a process of its own"},
	{from: []string{"./..."}, to: []string{"github.com/apache/arrow-go/..."},
		but: []string{"github.com/apache/arrow-go/v18/arrow", "github.com/apache/arrow-go/v18/arrow/array", "github.com/apache/arrow-go/v18/arrow/ipc", "github.com/apache/arrow-go/v18/arrow/memory"},
		why: "the rest of arrow-go weighs more than all of wherry: its Parquet brings gRPC and 20 MB, its kernels 6 MB"},
	{from: []string{"./..."}, except: []string{"./dataset", "./dataset/batch"}, to: []string{"github.com/parquet-go/...", "github.com/klauspost/...", "github.com/pierrec/..."},
		why: "one package reads Parquet files and one writes them; all others know columns only"},
	{from: []string{"./..."}, except: []string{"./node/..."}, to: []string{"github.com/prometheus/..."},
		why: "parts count in plain integers; node alone publishes them, so that a library user pays for no metrics stack"},
	{from: []string{"./..."}, to: []string{"github.com/cockroachdb/datadriven/...", "github.com/google/go-cmp/...",
		"github.com/rogpeppe/go-internal/...", "go.uber.org/goleak/...", "pgregory.net/rapid/..."},
		except: []string{"./fabric/fabrictest/...", "./cluster/storetest", "./inject/enginetest", "./internal/..."},
		why:    "test modules stay out of what people build; only suites meant for tests may import them"},
	{from: []string{"./..."}, to: []string{"./internal/golden", "./internal/ports", "./internal/seeds", "./internal/suite"},
		except: []string{"./fabric/fabrictest/..."},
		why:    "they are for tests: golden and seeds add flags to whatever imports them"},
}

// matches reports whether the package at import path p (ours written "./x") is
// meant by pattern, importer being who asks.
func matches(pattern, p, importer string) bool {
	switch pattern {
	case below:
		return strings.HasPrefix(p, importer+"/")
	case outside:
		first, _, _ := strings.Cut(p, "/")
		return strings.Contains(first, ".") && first != "."
	case "./...":
		return p == "." || strings.HasPrefix(p, "./")
	}
	if base, all := strings.CutSuffix(pattern, "/..."); all {
		return p == base || strings.HasPrefix(p, base+"/")
	}
	return p == pattern
}

func matchesAny(patterns []string, p, importer string) bool {
	for _, pattern := range patterns {
		if matches(pattern, p, importer) {
			return true
		}
	}
	return false
}

// verdict is the reason why importer may not import p, or "".
func verdict(importer, p string) string {
	for _, r := range forbidden {
		if matchesAny(r.from, importer, importer) && !matchesAny(r.except, importer, importer) &&
			matchesAny(r.to, p, importer) && !matchesAny(r.but, p, importer) {
			return r.why
		}
	}
	return ""
}

// imported are a file's imports, ours written "./x".
func (s source) imported() []string {
	var all []string
	for _, spec := range s.file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser accepts string literals only
		}
		if p == modulePath {
			p = "."
		} else if rest, ours := strings.CutPrefix(p, modulePath+"/"); ours {
			p = "./" + rest
		}
		all = append(all, p)
	}
	return all
}

func importFaults(sources []source) []string {
	var faults []string
	for _, s := range sources {
		if s.test {
			continue
		}
		for _, p := range s.imported() {
			if why := verdict(s.pkg, p); why != "" {
				faults = append(faults, fmt.Sprintf("%s: %s imports %s: %s", s.path, s.pkg, p, why))
			}
		}
	}
	return faults
}

func TestImports(t *testing.T) {
	for _, f := range importFaults(loaded(t).sources) {
		t.Error(f)
	}
}

func TestEveryRuleHasItsReason(t *testing.T) {
	for i, r := range forbidden {
		if len(r.why) < 20 || len(r.from) == 0 || len(r.to) == 0 {
			t.Errorf("rule %d (%v to %v): a rule names both sides and says why", i, r.from, r.to)
		}
	}
}

func TestImportRulesBite(t *testing.T) {
	cases := []struct {
		importer, imported string
		allowed            bool
	}{
		{"./internal/ring", "./internal/futex", true},
		{"./internal/ring", "./fabric", false},
		{"./schema", "golang.org/x/sys/unix", false},
		{"./schema", "encoding/binary", true},
		{"./fabric", "./internal/memfd", true},
		{"./fabric", "./fabric/tcp", false},
		{"./fabric", "./schema", false},
		{"./fabric/shm", "./fabric", true},
		{"./fabric/shm", "./fabric/tcp", false},
		{"./fabric/shm", "./fabric/shm/ring", true},
		{"./fabric/shm", "./cluster", false},
		{"./cluster", "./fabric", true},
		{"./cluster", "./fabric/shm", false},
		{"./cluster", "./inject", false},
		{"./dataset", "./schema", true},
		{"./inject", "./dataset", true},
		{"./inject", "./inject/abi", true},
		{"./inject", "./fabric", true},
		{"./inject", "./fabric/tcp", false},
		{"./inject", "./rpc", false},
		{"./inject/abi", "./schema", false},
		{"./inject/image", "./schema", true},
		{"./inject/wasm", "./inject/image", true},
		{"./inject/wasm", "./inject/wasm/rewrite", true},
		{"./inject/wasm", "./fabric", false},
		{"./inject/wasm", "github.com/tetratelabs/wazero/api", true},
		{"./inject/elf", "./inject/wasm", false},
		{"./rpc", "./pool", false},
		{"./pool/excache", "./pool", true},
		{"./device/nvme", "./rpc", false},
		{"./pool", "./node", false},
		{"./node", "./fabric/tcp", true},
		{"./internal/libllvm", "github.com/ebitengine/purego", true},
		{"./inject/llvm", "github.com/ebitengine/purego", false},
		{"./cmd/wherry-llvm", "./internal/libllvm", true},
		{"./cmd/wherry", "./internal/libllvm", false},
		{"./node", "github.com/prometheus/client_golang/prometheus", true},
		{"./rpc", "github.com/prometheus/client_golang/prometheus", false},
		{"./node", "./demo", false},
		{"./node", "./cluster/etcd", false},
		{"./cmd/wherry", "./cluster/etcd", true},
		{"./cmd/wherry", "./demo", true},
		{"./cmd/wherry/term", "github.com/spf13/cobra", true},
		{"./node", "github.com/spf13/cobra", false},
		{"./demo", "./inject", true},
		{"./bench", "./demo", false},
		{"./inject", "github.com/tetratelabs/wazero", false},
		{"./cluster/etcd", "go.etcd.io/etcd/client/v3", true},
		{"./cluster", "go.etcd.io/etcd/client/v3", false},
		{"./fabric", "pgregory.net/rapid", false},
		{"./examples/outside", "./internal/memfd", false},
		{"./fabric/fabrictest", "./internal/suite", true},
		{"./node", "./internal/suite", false},
		{".", "./node", true},
	}
	for _, c := range cases {
		why := verdict(c.importer, c.imported)
		if (why == "") != c.allowed {
			t.Errorf("%s imports %s: allowed %v, want %v (%s)", c.importer, c.imported, why == "", c.allowed, why)
		}
	}
	s := offender(t, "fabric/x.go", "package fabric\nimport _ \""+modulePath+"/node\"\n")
	if len(importFaults([]source{s})) != 1 {
		t.Error("an upward import in a file went unnoticed")
	}
}
