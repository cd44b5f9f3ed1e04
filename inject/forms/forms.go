// Package forms chooses in which form a function runs at an element: which entry of its image, by which engine, and why not the
// others. An image has its code in several forms, as wasm, LLVM bitcode and ELF objects, the latter two for several kinds of
// processor; an element has engines for some of them. Everything here is pure.
package forms

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

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

// LongRun is the mean time of a run from which on native code is worth its worker process: a hand-over to one and back costs
// about 3 µs, so that is a twentieth of it.
const LongRun = 60 * time.Microsecond

const (
	// longEnough is what runs take together, at least, before anything follows from them: a first run of 100 µs found everything cold.
	longEnough = time.Millisecond
	// fewRuns is how many there are at least before native code is given up for their sake: the first ones have code that was compiled in haste.
	fewRuns = 4
	// unsure is how exactly a wasm run's time is known: to a slice.
	unsure = 100 * time.Microsecond
)

// Native reports whether a function that has run so is better run as native code: its runs are long, and those as native code, if there were some, took less than as wasm.
// They take longer where a function makes many host calls that the node answers: each is a hand-over.
func Native(history func(image.Form) History) bool {
	w := history(image.Wasm)
	return w.Time >= longEnough && w.Mean() >= LongRun && !slower(history)
}

// slower reports whether runs as native code took longer than as wasm.
func slower(history func(image.Form) History) bool {
	n := native(history)
	return n.Runs >= fewRuns && n.Time >= longEnough && n.Mean() > history(image.Wasm).Mean()+unsure
}

// native is how a function has run as native code.
func native(history func(image.Form) History) History {
	b, e := history(image.LLVMBitcode), history(image.ELF)
	return History{Runs: b.Runs + e.Runs, Time: b.Time + e.Time}
}

// Offer is what one engine of an element runs.
type Offer struct {
	Engine int // its number among the element's
	abi.Offer
}

// History is how a function has run at an element in one form.
type History struct {
	Runs uint64        // that ended
	Time time.Duration // that they took together, without waiting
}

// Mean is the mean time of a run.
func (h History) Mean() time.Duration {
	if h.Runs == 0 {
		return 0
	}
	return h.Time / time.Duration(h.Runs)
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
// of a form may not run here ("": it may), history how the function has run so far. By Auto a function begins as wasm, which is ready at once
// and needs no other process, and turns to native code when its runs are long, and back if that turns out slower.
func Choose(entries []image.Entry, offers []Offer, trust func(image.Form) string, history func(image.Form) History, wish Wish) ([]Candidate, []Refusal) {
	var good []Candidate
	var refused, unasked []Refusal
	long := Native(history)
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
		return cmp.Or(cmp.Compare(rank(a.Form, long), rank(b.Form, long)), cmp.Compare(a.Engine, b.Engine),
			cmp.Compare(len(entries[b.Entry].Features), len(entries[a.Entry].Features)))
	})
	for i := range good {
		good[i].Why = why(good, i, wish, history, long)
	}
	return good, append(refused, unasked...)
}

// rank is a form's place in the order.
func rank(f image.Form, long bool) int {
	switch {
	case f == image.Wasm && long:
		return 3
	case f == image.Wasm:
		return 0
	case f == image.LLVMBitcode: // it is compiled for this very processor
		return 1
	}
	return 2
}

// why says why the i-th of the candidates stands there.
func why(all []Candidate, i int, wish Wish, history func(image.Form) History, long bool) string {
	h := history(image.Wasm)
	alone := !slices.ContainsFunc(all, func(c Candidate) bool { return c.Form != all[i].Form })
	switch wasm := all[i].Form == image.Wasm; {
	case wish != Auto:
		return "form " + wish.String() + " was asked for"
	case alone:
		return "it has no other code that can run here"
	case wasm && h.Runs == 0:
		return "wasm is ready first, and nothing is known of its runs yet"
	case wasm && slower(history):
		n := native(history)
		return fmt.Sprintf("%s took %s each, and %d as wasm %s", runs(n.Runs, " as native code"), each(n), h.Runs, each(h))
	case wasm && !long && h.Mean() >= LongRun:
		return fmt.Sprintf("%s took %v, and nothing follows from less than %v together: native code is worth its process from %v each on", runs(h.Runs, ""), h.Time, longEnough, LongRun)
	case wasm && !long:
		return fmt.Sprintf("%s took %s each: native code is worth its process from %v on", runs(h.Runs, ""), each(h), LongRun)
	case long:
		return fmt.Sprintf("%s took %s each: native code is worth its process from %v on", runs(h.Runs, " as wasm"), each(h), LongRun)
	}
	return "in case wasm cannot run"
}

// runs says how many there were.
func runs(n uint64, how string) string {
	if n == 1 {
		return "1 run" + how
	}
	return fmt.Sprintf("%d runs%s", n, how)
}

// each says how long a run took, as far as that was measured: one that ends within its first slice counts as nothing.
func each(h History) string {
	if h.Mean() < time.Microsecond {
		return fmt.Sprintf("less than %v", unsure)
	}
	return h.Mean().String()
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
