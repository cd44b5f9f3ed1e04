// Package forms chooses in which form a function runs at an element: which entry of its image, by which engine, and why not the
// others. An image has its code in several forms, as wasm, LLVM bitcode and ELF objects, the latter two for several kinds of
// processor; an element has engines for some of them. Everything here is pure.
package forms

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
)

// Wish is the form in which a function's caller wants it to run, everywhere. Its numbers are the wire's.
type Wish uint8

const (
	Auto    Wish = iota // as each element finds best
	Wasm                // only so
	Bitcode             // only so
	ELF                 // only so
)

var wishes = [...]string{Auto: "auto", Wasm: "wasm", Bitcode: "bitcode", ELF: "elf"}

func (w Wish) String() string {
	if int(w) < len(wishes) {
		return wishes[w]
	}
	return fmt.Sprintf("wish %d", uint8(w))
}

// ParseWish reads what String wrote.
func ParseWish(s string) (Wish, error) {
	if i := slices.Index(wishes[:], s); i >= 0 {
		return Wish(i), nil
	}
	return 0, fmt.Errorf("forms: form %q is none of %s", s, strings.Join(wishes[:], ", "))
}

// form is the only one that a wish allows; 0: all.
func (w Wish) form() image.Form {
	return [...]image.Form{Auto: 0, Wasm: image.Wasm, Bitcode: image.LLVMBitcode, ELF: image.ELF}[w%4]
}

// Offer is what one engine of an element runs.
type Offer struct {
	Engine int // its number among the element's
	abi.Offer
}

// Candidate is code that may run here.
type Candidate struct {
	Entry  int // in the image's order
	Engine int // that runs it
	Form   image.Form
	Triple string
	Tier   string
	Why    string // it stands where it stands
}

// Refusal is code that may not.
type Refusal struct {
	Form   image.Form
	Triple string
	Why    string
}

// Refusals says why code may not run; what has the same reason is named together.
func Refusals(list []Refusal) string {
	var whys []string
	names := map[string][]string{}
	for _, r := range list {
		if names[r.Why] == nil {
			whys = append(whys, r.Why)
		}
		names[r.Why] = append(names[r.Why], abi.Offer{Form: r.Form.String(), Triple: r.Triple}.String())
	}
	for i, why := range whys {
		whys[i] = strings.Join(names[why], ", ") + ": " + why
	}
	return strings.Join(whys, "; ")
}

// Choose orders the entries of an image that can run at an element, the best first, and says of each of the others why it cannot; those that the
// caller does not want come last. trust says why code
// of a form may not run here ("": it may), past how the function has run so far. By Auto a function begins as wasm, which is ready at once
// and needs no other process, turns to native code when its runs are long, and back if that turns out slower (Past).
func Choose(entries []image.Entry, offers []Offer, trust func(image.Form) string, past *Past, wish Wish) ([]Candidate, []Refusal) {
	var good []Candidate
	var refused, unasked []Refusal
	native := past.PrefersNative()
	for i, e := range entries {
		if f := wish.form(); f != 0 && e.Form != f {
			unasked = append(unasked, Refusal{e.Form, e.Triple, "form " + wish.String() + " was asked for"})
			continue
		}
		c, why := match(&e, offers)
		if why == "" {
			why = trust(e.Form)
		}
		if why != "" {
			refused = append(refused, Refusal{e.Form, e.Triple, why})
			continue
		}
		c.Entry = i
		good = append(good, c)
	}
	slices.SortStableFunc(good, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(rank(a.Form, native), rank(b.Form, native)), cmp.Compare(a.Engine, b.Engine),
			cmp.Compare(len(entries[b.Entry].Features), len(entries[a.Entry].Features)))
	})
	for i := range good {
		good[i].Why = why(good, i, wish, past)
	}
	return good, append(refused, unasked...)
}

// rank is a form's place in the order.
func rank(f image.Form, native bool) int {
	switch {
	case f == image.Wasm && native:
		return 3
	case f == image.Wasm:
		return 0
	case f == image.LLVMBitcode: // it is compiled for this very processor
		return 1
	}
	return 2
}

// why says why the i-th of the candidates stands there.
func why(all []Candidate, i int, wish Wish, past *Past) string {
	alone := !slices.ContainsFunc(all, func(c Candidate) bool { return c.Form != all[i].Form })
	switch wasm := all[i].Form == image.Wasm; {
	case wish != Auto:
		return "form " + wish.String() + " was asked for"
	case alone:
		return "it has no other code that can run here"
	case !wasm && !past.PrefersNative():
		return "in case wasm cannot run"
	}
	return past.why()
}

// match finds the first offer for an entry, or says why there is none.
func match(e *image.Entry, offers []Offer) (Candidate, string) {
	why := "this element has no engine for it"
	var triples []string
	for _, o := range offers {
		switch {
		case o.Form != e.Form.String():
			continue
		case o.Why != "":
			why = o.Why
			continue
		case e.Form != image.Wasm && Target(o.Triple) != Target(e.Triple):
			triples = append(triples, Target(o.Triple))
			why = fmt.Sprintf("it is for %s, and this element is %s", Target(e.Triple), strings.Join(triples, ", "))
			continue
		}
		if missing := slices.DeleteFunc(slices.Clone(e.Features), func(f string) bool { return slices.Contains(o.Features, f) }); len(missing) > 0 {
			why = "this processor lacks " + strings.Join(missing, ", ")
			continue
		}
		return Candidate{Engine: o.Engine, Form: e.Form, Triple: e.Triple, Tier: o.Tier}, ""
	}
	return Candidate{}, why
}

// systems are the operating systems that a triple may name in its second part, without a vendor.
var systems = []string{"linux", "freebsd", "darwin", "windows", "none", "wasi"}

// Target is what of a triple decides whether code for it can run: processor and system. "x86_64-linux-gnu", "amd64-linux" and
// "x86_64-unknown-linux-gnu" are all x86_64-linux: functions call nothing but their host, so the C library in a triple means nothing.
func Target(triple string) string {
	parts := strings.Split(triple, "-")
	switch parts[0] {
	case "amd64":
		parts[0] = "x86_64"
	case "arm64":
		parts[0] = "aarch64"
	}
	switch {
	case len(parts) == 1:
		return parts[0]
	case len(parts) > 2 && !slices.Contains(systems, parts[1]):
		return parts[0] + "-" + parts[2]
	}
	return parts[0] + "-" + parts[1]
}
