package forms

import (
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
)

const amd, arm = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"

func entry(f image.Form, triple string, features ...string) image.Entry {
	return image.Entry{Form: f, Triple: triple, Features: features}
}

func offer(engine int, form, triple, why string, features ...string) Offer {
	return Offer{Engine: engine, Offer: abi.Offer{Form: form, Triple: triple, Features: features, Why: why, Tier: "t"}}
}

// TestChoose: what runs first, what after it, and why not the rest.
func TestChoose(t *testing.T) {
	wasm, bitcode, foreign, elf := entry(image.Wasm, ""), entry(image.LLVMBitcode, amd), entry(image.LLVMBitcode, arm), entry(image.ELF, amd)
	fast := entry(image.LLVMBitcode, amd, "avx2", "bmi2")
	all := []Offer{offer(0, "wasm32", "", ""), offer(1, "llvm-bitcode", amd, "", "avx2"), offer(1, "elf", amd, "", "avx2")}
	rich := []Offer{offer(0, "wasm32", "", ""), offer(1, "llvm-bitcode", amd, "", "avx2", "bmi2")}
	off := []Offer{offer(0, "wasm32", "", ""), offer(1, "llvm-bitcode", "", "native is off"), offer(1, "elf", "", "native is off")}
	trusted := func(image.Form) string { return "" }
	unsigned := func(f image.Form) string {
		if f == image.Wasm {
			return ""
		}
		return "it is not signed"
	}
	known := func(wasm, native Sample) Past { return Past{Wasm: wasm, Native: native} }
	short, long := warm(10, 10*time.Microsecond), warm(100, LongRun)
	first := func(took time.Duration) Past { return Past{Wasm: Sample{Cold: History{Runs: 1, Time: took}}} }
	trying := Past{Wasm: long, away: true}
	slow := Past{Wasm: long, Native: warm(4, time.Millisecond), due: 2 * time.Second, spent: time.Second}
	quick := Past{Wasm: long, Native: warm(100, 10*time.Microsecond), settled: true}
	back := Past{Wasm: warm(1, LongRun), Native: warm(100, 10*time.Microsecond), settled: true, away: true}
	for name, c := range map[string]struct {
		entries []image.Entry
		offers  []Offer
		trust   func(image.Form) string
		past    Past
		wish    Wish
		want    string            // candidates: entry/engine
		why     map[string]string // of candidates ("0/1") and refused entries ("no 2"): a part of it
	}{
		"wasm alone":            {[]image.Entry{wasm}, all, trusted, Past{}, Auto, "0/0", map[string]string{"0/0": "no other"}},
		"new":                   {[]image.Entry{wasm, bitcode, elf}, all, trusted, Past{}, Auto, "0/0 1/1 2/1", map[string]string{"0/0": "nothing is known", "1/1": "in case"}},
		"short runs":            {[]image.Entry{wasm, bitcode, elf}, all, trusted, known(short, Sample{}), Auto, "0/0 1/1 2/1", map[string]string{"0/0": "runs take 10µs each: native code is worth its process from 60µs on"}},
		"runs within a slice":   {[]image.Entry{wasm, bitcode}, all, trusted, known(warm(6666, 0), Sample{}), Auto, "0/0 1/1", map[string]string{"0/0": "runs take less than 100µs each"}},
		"long runs":             {[]image.Entry{wasm, bitcode, elf}, all, trusted, trying, Auto, "1/1 2/1 0/0", map[string]string{"1/1": "took 60µs each"}},
		"long, native slower":   {[]image.Entry{wasm, bitcode, elf}, all, trusted, slow, Auto, "0/0 1/1 2/1", map[string]string{"0/0": "runs as native code took 1ms each, and as wasm take 60µs: native code is tried again once they have taken 1s more"}},
		"long, native quicker":  {[]image.Entry{wasm, bitcode, elf}, all, trusted, quick, Auto, "1/1 2/1 0/0", map[string]string{"1/1": "runs as native code take 10µs each, and as wasm took 60µs"}},
		"wasm looked at again":  {[]image.Entry{wasm, bitcode, elf}, all, trusted, back, Auto, "0/0 1/1 2/1", map[string]string{"0/0": "runs as native code took 10µs each, and now a few show how long they take as wasm"}},
		"native only, quicker":  {[]image.Entry{bitcode, elf}, all, trusted, quick, Auto, "0/1 1/1", nil},
		"a first long run":      {[]image.Entry{wasm, bitcode, elf}, all, trusted, first(900 * time.Microsecond), Auto, "0/0 1/1 2/1", map[string]string{"0/0": "runs took 900µs so far, and nothing follows from less than 1ms together"}},
		"a first very long run": {[]image.Entry{wasm, bitcode, elf}, all, trusted, Past{Wasm: Sample{Cold: History{Runs: 1, Time: time.Millisecond}}, away: true}, Auto, "1/1 2/1 0/0", nil},
		"long, not signed":      {[]image.Entry{wasm, bitcode, elf}, all, unsigned, trying, Auto, "0/0", map[string]string{"no 1": "not signed", "no 2": "not signed"}},
		"long, off":             {[]image.Entry{wasm, bitcode}, off, trusted, trying, Auto, "0/0", map[string]string{"no 1": "native is off"}},
		"bitcode asked for":     {[]image.Entry{wasm, bitcode, elf}, all, trusted, Past{}, Bitcode, "1/1", map[string]string{"1/1": "asked for", "no 0": "form bitcode was asked for"}},
		"elf asked for":         {[]image.Entry{wasm, bitcode, elf}, all, trusted, Past{}, ELF, "2/1", nil},
		"wasm asked for":        {[]image.Entry{wasm, bitcode}, all, trusted, trying, Wasm, "0/0", nil},
		"asked, not signed":     {[]image.Entry{wasm, bitcode}, all, unsigned, trying, Bitcode, "", map[string]string{"no 1": "not signed"}},
		"asked, not there":      {[]image.Entry{wasm}, all, trusted, Past{}, ELF, "", map[string]string{"no 0": "form elf"}},
		"another processor":     {[]image.Entry{foreign}, all, trusted, Past{}, Auto, "", map[string]string{"no 0": "it is for aarch64-linux, and this element is x86_64-linux"}},
		"no engine":             {[]image.Entry{bitcode}, all[:1], trusted, Past{}, Auto, "", map[string]string{"no 0": "no engine"}},
		"runs nothing":          {[]image.Entry{wasm}, nil, trusted, Past{}, Auto, "", map[string]string{"no 0": "no engine"}},
		"lacks a feature":       {[]image.Entry{fast}, all, trusted, Past{}, Auto, "", map[string]string{"no 0": "lacks bmi2"}},
		"most features first":   {[]image.Entry{bitcode, fast}, rich, trusted, Past{}, Auto, "1/1 0/1", nil},
		"another spelling":      {[]image.Entry{entry(image.ELF, "amd64-linux")}, all, trusted, Past{}, Auto, "0/1", nil},
		"native only, trusted":  {[]image.Entry{bitcode, elf}, all, trusted, Past{}, Auto, "0/1 1/1", nil},
	} {
		good, refused := Choose(c.entries, c.offers, c.trust, &c.past, c.wish)
		said, order := map[string]string{}, []string{}
		for _, g := range good {
			key := string(rune('0'+g.Entry)) + "/" + string(rune('0'+g.Engine))
			said[key] = g.Why
			order = append(order, key)
			if g.Why == "" || g.Tier != "t" || g.Form != c.entries[g.Entry].Form || g.Triple != c.entries[g.Entry].Triple {
				t.Errorf("%s: %+v", name, g)
			}
		}
		if got := strings.Join(order, " "); got != c.want {
			t.Errorf("%s: %s, want %s (%v)", name, got, c.want, refused)
		}
		if len(good)+len(refused) != len(c.entries) {
			t.Errorf("%s: %d candidates and %d refused of %d", name, len(good), len(refused), len(c.entries))
		}
		for i, e := range c.entries {
			for _, r := range refused {
				if r.Form == e.Form && r.Triple == e.Triple {
					said["no "+string(rune('0'+i))] = r.Why
				}
			}
		}
		for key, part := range c.why {
			if !strings.Contains(said[key], part) {
				t.Errorf("%s: %s says %q, not %q", name, key, said[key], part)
			}
		}
	}
}

// TestRefusals: the reasons of code that was asked for come first, and what has the same reason is named together.
func TestRefusals(t *testing.T) {
	entries := []image.Entry{entry(image.Wasm, ""), entry(image.LLVMBitcode, amd), entry(image.LLVMBitcode, arm), entry(image.ELF, amd), entry(image.ELF, arm)}
	offers := []Offer{offer(0, "wasm32", "", ""), offer(1, "llvm-bitcode", amd, ""), offer(1, "elf", amd, "")}
	unsigned := func(image.Form) string { return "it is not signed" }
	_, refused := Choose(entries, offers, unsigned, &Past{}, ELF)
	want := "elf for x86_64-unknown-linux-gnu: it is not signed; elf for aarch64-unknown-linux-gnu: it is for aarch64-linux, and this element is x86_64-linux; " +
		"wasm32, llvm-bitcode for x86_64-unknown-linux-gnu, llvm-bitcode for aarch64-unknown-linux-gnu: form elf was asked for"
	if got := Refusals(refused); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestTarget: spellings of one target are one.
func TestTarget(t *testing.T) {
	for triple, want := range map[string]string{
		amd: "x86_64-linux", "x86_64-linux-gnu": "x86_64-linux", "amd64-linux": "x86_64-linux", "x86_64-pc-linux-musl": "x86_64-linux",
		arm: "aarch64-linux", "arm64-linux-gnu": "aarch64-linux", "riscv64-unknown-linux-gnu": "riscv64-linux",
		"x86_64-pc-windows-msvc": "x86_64-windows", "x86_64-unknown": "x86_64-unknown", "x86_64": "x86_64",
	} {
		if got := Target(triple); got != want {
			t.Errorf("%s: %s, want %s", triple, got, want)
		}
	}
}

// TestWish: wishes are read as they are written.
func TestWish(t *testing.T) {
	for w := Auto; w <= ELF; w++ {
		if got, err := ParseWish(w.String()); err != nil || got != w {
			t.Errorf("%v: %v, %v", w, got, err)
		}
	}
	if _, err := ParseWish("jar"); err == nil {
		t.Error("jar is a form")
	}
}
