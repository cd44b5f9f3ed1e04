package nativetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/internal/stackswitch"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/schema"
)

// ring loads a permutation of one cycle onto all nodes.
func (s *nodes) ring(rows int) (*cluster.Table, []uint64) {
	s.t.Helper()
	next := make([]uint64, rows)
	for i := range next {
		next[i] = uint64(i)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := rows - 1; i > 0; i-- {
		j := r.IntN(i)
		next[i], next[j] = next[j], next[i]
	}
	var text strings.Builder
	for _, n := range next {
		fmt.Fprintln(&text, n)
	}
	_, err := s.c.Load(s.t.Context(), client.LoadSpec{Name: "ring", Input: dataset.NewText("ring", []byte(text.String())),
		Options: dataset.Options{Format: dataset.CSV, Schema: &schema.Schema{Fields: []schema.Field{{Name: "next", Type: "u64"}}}, Spread: dataset.Spread{Kind: cluster.Block}}}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	table, err := s.c.Table(s.t.Context(), "ring", "")
	if err != nil {
		s.t.Fatal(err)
	}
	return table, next
}

// TestChase: the papers' pointer chase goes as signed bitcode to four nodes that never saw it, and answers what wasm answers.
func TestChase(t *testing.T) { chase(t, startApart(t, "worker", "a", "b", "c", "d")) }

// TestChaseNear: on one machine the same function reads what the other nodes have from where it is, with the same answers.
func TestChaseNear(t *testing.T) { chase(t, start(t, "a", "b")) }

// TestChaseInProcess: nodes whose operators say so run it in their own process, with the same answers.
func TestChaseInProcess(t *testing.T) {
	if !stackswitch.Resumes() {
		t.Skip("there is no such mode on this processor")
	}
	chase(t, startApart(t, "in-process", "a", "b"))
}

func chase(t *testing.T, s *nodes) {
	table, next := s.ring(4096)
	source, err := os.ReadFile("../../inject/xrdma/src/chase.c")
	if err != nil {
		t.Fatal(err)
	}
	wasm, _ := xrdma.Chase().Entry(image.Wasm, "")
	m := xrdma.Chase().Manifest()
	img := s.sign(s.build(function{source: string(source), manifest: m, wasm: wasm.Code}), s.key)
	for i := range 20 {
		from := uint64(i * 199) // in each node's rows
		want := from
		for range 64 {
			want = next[want]
		}
		for _, form := range []forms.Wish{forms.Bitcode, forms.Wasm} {
			a, err := s.call(invoke.Request{Image: img, Table: table, Form: form, Args: map[string]string{"start": fmt.Sprint(from), "depth": "64"}})
			if err != nil {
				t.Fatalf("%v: %v", form, err)
			}
			var out strings.Builder
			if err := a.Write(&out, batch.CSV); err != nil || out.String() != fmt.Sprintf("row\n%d\n", want) {
				t.Fatalf("%v: from %d it ends on %q, want %d (%v)", form, from, out.String(), want, err)
			}
		}
	}
	for _, n := range s.names {
		e, err := s.c.Explain(t.Context(), n, img.ID(), forms.Bitcode)
		if err != nil || e.Form != "llvm-bitcode" || e.Triple != triple() || !strings.HasPrefix(e.Tier, "compiled for ") && !strings.HasPrefix(e.Tier, "first tier") {
			t.Errorf("%s ran it as %+v (%v)", n, e, err)
		}
		st, err := s.c.Status(t.Context(), n)
		if err != nil || len(st.Functions) != 1 || len(st.Functions[0].Ran) != 2 || st.Functions[0].Errors != 0 {
			t.Errorf("%s: %+v (%v)", n, st.Functions, err)
		}
	}
}
