package inject_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
)

// everybody is the principal of all clients here.
const everybody = "anybody"

// run carries out a program of steps at the first element.
func (s *street) run(img *image.Image, program []step) {
	s.t.Helper()
	fut, err := s.prepareImage(s.client, img).Start(within(s.t, patience), []inject.Root{{Element: 0, Payload: payload(3, program)}}, inject.Options{})
	if err == nil {
		_, err = wait(s.t, fut)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// told is what an element says of the descendants of a function: kind, parent, and whether it has run there.
func told(list []inject.Descendant, names map[image.ID]string) (lines []string) {
	for _, d := range list {
		name := names[d.ID]
		if name == "" {
			name = d.ID.Short()
		}
		lines = append(lines, fmt.Sprintf("%s %s %s from %s: %s", name, d.Kind, d.Name, names[d.Parent], d.Form))
	}
	slices.Sort(lines)
	return lines
}

// TestDescendants: an element tells of the functions that came from one there, by constants or by assembling, also from each other, to whose calls they are only. Each element tells
// what it knows: who ran what another one assembled does not know what it came from.
func TestDescendants(t *testing.T) {
	s := newStreet(t)
	img := stepsImage(t, "first", withConstants)
	code, more := stepsCode(t), append(stepsCode(t), 0, 2, 1, 'x')
	assemble := func(at int, code []byte) []step { return s.lay(at, code) }
	derive := func(n uint16) []step { return one(opDerive, 8, n) }
	as := func(at uint8, steps ...step) []step { return other(opForwardAs, at, steps) }
	s.run(img, slices.Concat( // each branch makes one function, and goes on as that
		fork(0, append(derive(7), as(1, append(derive(9), as(2)...)...)...)...),
		fork(0, append(derive(7), as(2, append(assemble(2, more), as(2)...)...)...)...),
		fork(0, append(assemble(0, code), as(1, append(assemble(1, more), as(2)...)...)...)...)))
	constants := func(n uint64) image.ID { return img.ID().Derived(binary.LittleEndian.AppendUint64(nil, n)) }
	madeOf := func(parent *image.Image, code []byte) *image.Image {
		made, err := parent.Assemble(code)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	made := madeOf(img, code)
	names := map[image.ID]string{img.ID(): "first", constants(7): "seven", constants(9): "nine", made.ID(): "made", madeOf(made, more).ID(): "again", madeOf(img, more).ID(): "third"}
	for i, want := range []struct{ first, made []string }{
		{[]string{"made assembled first.made from first: "}, nil},
		{[]string{"seven derived first from first: wasm32"}, []string{"again assembled first.made from made: "}},
		{[]string{"nine derived first from first: wasm32", "seven derived first from first: wasm32", "third assembled first.made from seven: wasm32"}, nil},
	} {
		rt := s.nodes[i].rt
		for id, lines := range map[image.ID][]string{img.ID(): want.first, made.ID(): want.made} {
			list, left := rt.Descendants(id, forms.Auto, everybody, false)
			if got := told(list, names); !slices.Equal(got, lines) || left != 0 {
				t.Errorf("n%d says of %s %q and %d more, want %q", i, names[id], got, left, lines)
			}
			for _, d := range list {
				if d.Why == "" || (d.Form == "") != (d.Why == "it has not run here") {
					t.Errorf("n%d: %s: %+v", i, names[d.ID], d.Explanation)
				}
			}
			if list, left := rt.Descendants(id, forms.Auto, "mallory", false); len(list)+left != 0 {
				t.Errorf("n%d tells another principal of %d functions", i, len(list)+left)
			}
			if list, _ := rt.Descendants(id, forms.Auto, "admin", true); len(list) != len(lines) {
				t.Errorf("n%d tells an admin of %d functions, want %d", i, len(list), len(lines))
			}
		}
		if list, _ := rt.Descendants(img.ID(), forms.Wasm, everybody, false); slices.ContainsFunc(list, func(d inject.Descendant) bool { return d.Kind == inject.Derived }) {
			t.Errorf("n%d tells of what was derived by a call with another wish", i)
		}
	}
	if e, known := s.nodes[2].rt.Explain(img.ID(), forms.Auto); !known || e.Form != "" || !strings.Contains(e.Why, "derived from it") {
		t.Errorf("n2 says of the function itself %+v, %v", e, known)
	}
}

// TestDescendantsBound: the newest are told of, and how many more there are.
func TestDescendantsBound(t *testing.T) {
	s := newStreet(t)
	img := stepsImage(t, "many", withConstants)
	for i := range uint16(20) {
		s.run(img, slices.Concat(one(opDerive, 8, i), other(opForwardAs, 0, nil)))
	}
	list, left := s.nodes[0].rt.Descendants(img.ID(), forms.Auto, everybody, false)
	newest := img.ID().Derived(binary.LittleEndian.AppendUint64(nil, 19))
	if len(list) != 16 || left != 4 || list[0].ID != newest {
		t.Errorf("%d are listed, and %d more, the first is %v; want 16, 4, %v", len(list), left, list[0].ID, newest)
	}
}

// TestAssembleEachOther: two functions that assemble each other are told of once.
func TestAssembleEachOther(t *testing.T) {
	s := newStreet(t)
	img := stepsImage(t, "turns", nil)
	make1 := s.lay(0, stepsCode(t))
	s.run(img, slices.Concat(make1, other(opForwardAs, 0, slices.Concat(make1, other(opForwardAs, 0, slices.Concat(make1, other(opForwardAs, 0, nil)))))))
	list, left := s.nodes[0].rt.Descendants(img.ID(), forms.Auto, everybody, false)
	first, err := img.Assemble(stepsCode(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[1].ID != first.ID() || list[0].Parent != first.ID() || left != 0 { // the description names the maker, so the second is another one than the first, and makes itself
		t.Errorf("%+v, %d", list, left)
	}
}
