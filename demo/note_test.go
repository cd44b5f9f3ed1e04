package demo

import (
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/demo/report"
)

// TestNoteExplainsAllThatWin: each method that beats the functions has its
// reason, in units that fit, and the fastest comes first.
func TestNoteExplainsAllThatWin(t *testing.T) {
	p := &prepared{Query: Query{Kind: KindNeeds}, noun: noun{"vertex", "vertices"}}
	q := &report.Question{Methods: []report.Method{
		{Name: "injected", Title: "injected", TimeNs: 1000, Messages: 1, Chain: 2},
		{Name: "get", Title: "Get, one at a time", TimeNs: 900, Operations: 1, RoundTrips: 1},
		{Name: "get-batched", Title: "Get, batched", TimeNs: 2000, RoundTrips: 1},
		{Name: "fetch-all", Title: "fetch all, compute", TimeNs: 500, RoundTrips: 1, BytesToClient: 321},
	}}
	got := note(p, q)
	for _, want := range []string{`Here "fetch all, compute" and "Get, one at a time" beat the injected functions. fetch all, compute: All that`,
		" is 321 B, which", "sent 1 message.", "Get, one at a time: It takes only 1 read, and"} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q:\n%s", want, got)
		}
	}
	q.Methods[3].TimeNs = 3000
	if got := note(p, q); !strings.HasPrefix(got, `Here "Get, one at a time" beats the injected functions. It takes only 1 read`) {
		t.Error(got)
	}
	q.Methods[1].TimeNs = 3000
	if got := note(p, q); got != "" {
		t.Error(got)
	}
}
