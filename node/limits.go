package node

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/device/lender"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/wasm"
	compiling "github.com/wherry-fabric/wherry/internal/compiler"
	"github.com/wherry-fabric/wherry/pool/component"
	"github.com/wherry-fabric/wherry/rpc"
	"github.com/wherry-fabric/wherry/schema"
)

// limits are all that a configuration's limits can set: what messages name when something is refused. Zero fields mean the defaults.
type limits struct {
	fabric    fabric.Limits
	calls     rpc.Limits
	functions travel.Limits
	engine    engineLimits
	ceilings  abi.Limits
	pool      component.Limits
	devices   lender.Limits
}

// engineLimits are those of wasm.Config and native.Config.
type engineLimits struct {
	MaxInstances int
	MaxWorkers   int
	MemoryBytes  uint64 // of both
	CodeBytes    uint64 // of both
}

// code is what the machine code of each engine may take: half of CodeBytes where there are two. By default it is an eighth of what free comes to, up to
// wasm.DefaultCodeBytes, and never less than the largest function's.
func (l engineLimits) code(native bool, free Bytes) uint64 {
	all := l.CodeBytes
	if all == 0 {
		if all = wasm.DefaultCodeBytes; free != 0 {
			all = min(all, max(uint64(max(free, 0))/8, leastCode))
		}
	}
	if native {
		return all / 2
	}
	return all
}

// leastCode leaves one principal, which has three quarters, room for the largest module.
const leastCode = 2 * compiling.MaxBytes

// memory is what each engine has of MemoryBytes: half where there are two. Each keeps idle instances in its part, and neither
// could have the other end its own. By default functions have half of what free, the memory that is not lent, comes to (0: nobody knows), up to
// wasm.DefaultMemoryBytes: what they are charged for they may touch, and a node that has less ends.
func (l engineLimits) memory(native bool, free Bytes, ceilings abi.Limits) (ofWasm, ofNative uint64) {
	all := l.MemoryBytes
	if all == 0 {
		all = wasm.DefaultMemoryBytes
		if free != 0 {
			least := wasm.LeastMemory(ceilings)
			if native {
				least *= 2
			}
			all = min(all, max(uint64(max(free, 0))/2, least))
		}
	}
	if native {
		ofNative = all / 2
	}
	return all - ofNative, ofNative
}

// freeMemory is what is left besides what is lent and what calls may take; 0: nobody knows.
func (c *Config) freeMemory(calls *rpc.Limits) Bytes {
	has, ok := ownMemory()
	if !ok {
		return 0
	}
	segments, heap := calls.Memory()
	return max(has-c.Memory-Bytes(segments+heap), 1)
}

// notByName are limits that have a key of their own.
var notByName = map[string]string{"fabric.lent_bytes": "memory"}

// byName lists the limits by their full name, as in functions.held_runs.
func (l *limits) byName() map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for _, part := range []struct {
		name string
		of   any
	}{{"fabric", &l.fabric}, {"calls", &l.calls}, {"functions", &l.functions}, {"functions", &l.engine}, {"ceilings", &l.ceilings}, {"pool", &l.pool}, {"devices", &l.devices}} {
		v := reflect.ValueOf(part.of).Elem()
		for _, f := range reflect.VisibleFields(v.Type()) {
			if name := part.name + "." + snake(f.Name); notByName[name] == "" {
				out[name] = v.FieldByIndex(f.Index)
			}
		}
	}
	return out
}

// snake is a Go name as a key of the configuration: HeldRuns is held_runs.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 && name[i-1] >= 'a' && name[i-1] <= 'z' {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// findLimit finds a limit by its name, with or without its part, as a key or as messages have it: functions.held_runs, held_runs, HeldRuns and
// Limits.HeldRuns are one.
func findLimit(all map[string]reflect.Value, name string) (full string, err error) {
	part, rest, ok := strings.Cut(name, ".")
	if !ok || part == "Limits" {
		part, rest = "", strings.TrimPrefix(name, "Limits.")
	}
	rest = snake(rest)
	var found []string
	for full := range all {
		if p, key, _ := strings.Cut(full, "."); key == rest && (part == "" || p == part) {
			found = append(found, full)
		}
	}
	slices.Sort(found)
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", fmt.Errorf("%s is the name of several: say %s", name, strings.Join(found, " or "))
	}
	for full, key := range notByName {
		if full == name || strings.HasSuffix(full, "."+rest) {
			return "", fmt.Errorf("%s is set by the key %s", name, key)
		}
	}
	return "", fmt.Errorf("there is no limit %s; %s", name, schema.Suggest(rest, shortNames(all)))
}

func shortNames(all map[string]reflect.Value) (out []string) {
	for _, full := range slices.Sorted(maps.Keys(all)) {
		_, key, _ := strings.Cut(full, ".")
		out = append(out, key)
	}
	return out
}

// setLimits reads the configuration's limits into what the parts take.
func (c *Config) setLimits() (*limits, error) {
	l := &limits{fabric: c.Limits}
	all := l.byName()
	said := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.LimitsByName)) {
		full, err := findLimit(all, name)
		if err != nil {
			return nil, fmt.Errorf("limits: %w", err)
		}
		if other, twice := said[full]; twice {
			return nil, fmt.Errorf("limits: %s and %s are the same", other, name)
		}
		said[full] = name
		if err := setLimit(all[full], c.LimitsByName[name]); err != nil {
			return nil, fmt.Errorf("limits: %s: %w", name, err)
		}
	}
	if err := l.fabric.Validate(); err != nil {
		return nil, err
	}
	if err := l.pool.Validate(); err != nil {
		return nil, err
	}
	if err := l.devices.Validate(); err != nil {
		return nil, err
	}
	return l, l.calls.Validate()
}

// setLimit reads one value: a number, which may have a unit of bytes, or a time.
func setLimit(v reflect.Value, text string) error {
	if v.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return fmt.Errorf("%q is not a time above 0, as in 30s", text)
		}
		v.SetInt(int64(d))
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		b, err := ParseBytes(text)
		if err != nil || b < 0 {
			return fmt.Errorf("%q is not a number, as in 4096 or 64MiB", text)
		}
		n = uint64(b)
	}
	switch {
	case n == 0:
		return fmt.Errorf("it must be more than 0; leave it out for the default")
	case v.CanInt() && !v.OverflowInt(int64(n)):
		v.SetInt(int64(n))
	case v.CanUint() && !v.OverflowUint(n):
		v.SetUint(n)
	default:
		return fmt.Errorf("%s is more than it can be", text)
	}
	return nil
}
