package abi

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	page   = "../../docs/abi.md"
	header = "../../sdk/c/wherry.h"
)

//go:generate go test -run TestWrittenFromTheTable -update .
var update = flag.Bool("update", false, "write the generated parts of "+page+" and "+header)

// TestWrittenFromTheTable: the page and the header say what the tables of calls and statuses say.
func TestWrittenFromTheTable(t *testing.T) {
	between(t, page, "<!-- calls: generated, see inject/abi -->\n\n", "\n<!-- end -->", pageCalls())
	between(t, page, "<!-- statuses: generated, see inject/abi -->\n\n", "\n<!-- end -->", pageStatuses())
	between(t, header, "/* Generated from inject/abi: statuses. */\n", "/* End of what is generated. */", headerStatuses())
	between(t, header, "/* Generated from inject/abi: host calls. */\n", "/* End of what is generated. */", headerCalls())
}

// between compares what stands after begin, up to end, in a file, and writes it anew with -update.
func between(t *testing.T, path, begin, end, want string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(old, []byte(begin))
	got, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s has no %q, or no %q after it", path, begin, end)
	}
	if *update {
		if err := os.WriteFile(path, slices.Concat(before, []byte(begin), []byte(want), []byte(end), after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(got) != want {
		t.Errorf("%s is not what inject/abi says: run go generate ./inject/abi", path)
	}
}

func pageCalls() string {
	var b strings.Builder
	b.WriteString("| Import | Type | ABI | Effect | What it does | Errors |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, c := range calls {
		var params []string
		for _, p := range c.Params {
			kind := map[byte]string{'i': "i32", 'I': "i64"}[Wasm(p.C)]
			if strings.HasSuffix(p.C, "*") {
				kind = "ptr"
			}
			params = append(params, p.Name+" "+kind)
		}
		sig := "(" + strings.Join(params, ", ") + ")"
		if c.Result != "void" {
			sig += map[byte]string{'i': " -> i32", 'I': " -> i64"}[Wasm(c.Result)]
		}
		var errs []string
		for _, st := range c.Errors {
			errs = append(errs, "`"+statuses[-st].name+"`")
		}
		versions := fmt.Sprint(c.Since, " on")
		if c.Until != 0 {
			versions = fmt.Sprint(c.Until)
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %v | %s | %s |\n", c.Name, sig, versions, c.Effect, c.Words, strings.Join(errs, ", "))
	}
	return b.String()
}

func pageStatuses() string {
	var b strings.Builder
	b.WriteString("| Number | Name | Meaning |\n| --- | --- | --- |\n")
	for i, s := range statuses {
		fmt.Fprintf(&b, "| %d | `%s` | %s |\n", -i, s.name, s.text)
	}
	return b.String()
}

// inC is a status's name in the header: WHERRY_ERR_PEER_LOST for ErrPeerLost.
func inC(name string) string {
	return "WHERRY_" + strings.ToUpper(regexp.MustCompile("([a-z])([A-Z])").ReplaceAllString(name, "${1}_$2"))
}

func headerStatuses() string {
	var b strings.Builder
	for i, s := range statuses {
		number := "0"
		if i > 0 {
			number = fmt.Sprintf("(-%d)", i)
		}
		fmt.Fprintf(&b, "%-40s /* %s */\n", "#define "+inC(s.name)+" "+number, s.text)
	}
	return b.String()
}

func headerCalls() string {
	var b strings.Builder
	for _, c := range CallsOf(Version) {
		does := regexp.MustCompile("`(\\w+)`").ReplaceAllStringFunc(c.Words, func(name string) string {
			if name = strings.Trim(name, "`"); strings.HasPrefix(name, "Err") {
				return inC(name)
			}
			return "wherry_" + name
		})
		b.WriteString(wrap("/* ", " * ", " */", " ", strings.Fields(does), 80) + "\n")
		params := []string{}
		for _, p := range c.Params {
			params = append(params, strings.ReplaceAll(p.C+" "+p.Name, "* ", "*"))
		}
		if len(params) == 0 {
			params = []string{"void"}
		}
		start := strings.ReplaceAll(fmt.Sprintf("WHERRY_CALL(%s) %s wherry_%s(", c.Name, c.Result, c.Name), "* ", "*")
		b.WriteString(wrap(start, strings.Repeat(" ", len(start)), ");", ", ", params, 100) + "\n\n")
	}
	return b.String()
}

// wrap puts words into lines of at most width bytes, the first after first, the others after next, with sep between.
func wrap(first, next, last, sep string, words []string, width int) string {
	line, out := first, ""
	for i, word := range words {
		switch {
		case i > 0 && len(line)+len(sep)+len(word)+len(last) > width:
			out, line = out+strings.TrimRight(line+sep, " ")+"\n", next
		case i > 0:
			line += sep
		}
		line += word
	}
	return out + line + last
}

// TestCalls: each call has a version that there is, a name of its own and a sentence.
func TestCalls(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Calls() {
		if seen[c.Symbol()] || c.Since == 0 || c.Since > Version || c.Until != 0 && c.Until < c.Since || !strings.HasSuffix(c.Words, ".") || strings.ContainsAny(c.Words, "|\n") {
			t.Errorf("%+v: named twice, of no version up to %d, or what it does is no sentence for one line of a table", c, Version)
		}
		seen[c.Symbol()] = true
		if got, err := CallNamed(c.Name, c.Since); err != nil || got.Symbol() != c.Symbol() {
			t.Errorf("CallNamed(%q, %d) is %+v, %v", c.Name, c.Since, got, err)
		}
	}
	for _, name := range []string{"exec", "owner_2"} {
		if _, err := CallNamed(name, Version); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("there is a call %s: %v", name, err)
		}
	}
	if _, err := CallNamed("random", 1); err == nil || !strings.Contains(err.Error(), "random") || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("random in ABI 1: %v", err)
	}
	one, _ := CallNamed("forward", 1)
	two, _ := CallNamed("forward", 2)
	if p, _ := one.Types(); p != "iii" || one.Symbol() != "forward" {
		t.Errorf("forward of ABI 1 is %q %q", one.Symbol(), p)
	}
	if p, _ := two.Types(); p != "iiii" || two.Symbol() != "forward_2" || two.Effect != Waits {
		t.Errorf("forward of ABI 2 is %q %q", two.Symbol(), p)
	}
	atomic, _ := CallNamed("atomic", Version)
	if params, results := atomic.Types(); params != "iiIiiIIi" || results != "i" {
		t.Errorf("atomic has the type %q, %q", params, results)
	}
	put, _ := CallNamed("put", 1)
	get, _ := CallNamed("get", 1)
	if !put.May(ErrMemory) || !get.May(ErrMemory) || put.May(ErrDone) || !get.May(ErrNoWindow) || !get.May(ErrUnsupported) {
		t.Error("put or get may answer what it cannot, or the other way round")
	}
}

// TestStatuses: the table stands at the numbers.
func TestStatuses(t *testing.T) {
	if len(statuses) != 1-int(ErrFar) || statuses[-ErrNoWindow].name != "ErrNoWindow" || ErrOutcomeUnknown != -13 || ErrFar != -14 || ErrDone.String() != statuses[8].text {
		t.Errorf("%d statuses, the last is %d", len(statuses), ErrFar)
	}
}
