package inject_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
)

// codeAt is the word where code lies in an element's memory.
const codeAt = 8

// lay puts code into an element's memory, and gives the step that makes function 1 of it.
func (s *street) lay(at int, code []byte) []step {
	copy(s.memory[at].Bytes()[codeAt*8:], code)
	return one(opAssemble, codeAt, uint16(len(code)))
}

// stepsCode is the module that does what its payload says, as no image has it.
func stepsCode(t testing.TB) []byte {
	t.Helper()
	code, err := os.ReadFile(stepsModule)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// assembled is what a program replies whose only notes are statuses: 1 of each assemble, 0 of each fork.
func assembled(sum uint64, steps []step) (replies []uint64) {
	note := func(v uint64) { sum = (sum^v)*0x9e3779b97f4a7c15 + 1 }
	for i := 0; i < len(steps); i++ {
		switch s := steps[i]; s.op {
		case opAssemble:
			note(1)
		case opForkAs, opFork:
			replies = append(replies, assembled(sum+uint64(i+1), steps[i+1:][:s.n])...)
			note(0)
			i += int(s.n)
		case opForwardAs, opForward:
			return append(replies, assembled(sum+uint64(i+1), steps[i+1:][:s.n])...)
		}
	}
	return append(replies, sum)
}

func sums(replies []string) (list []uint64) {
	for _, r := range replies {
		list = append(list, binary.LittleEndian.Uint64([]byte(r)))
	}
	slices.Sort(list)
	return list
}

// TestAssemble: a function that a run makes runs wherever branches go as it, also from there, and the call ends when all of them have; then
// nothing of it is pinned anywhere.
func TestAssemble(t *testing.T) {
	for _, transport := range []string{"tcp", "shm"} {
		t.Run(transport, func(t *testing.T) {
			s := newStreetOver(t, transport, func(c *inject.Config) { c.Travel.IdleUnpin = 50 * time.Millisecond })
			f := s.prepareImage(s.client, stepsImage(t, "maker", nil))
			for turn := range 3 {
				code := append(stepsCode(t), 0, 2, 1, byte(turn)) // a section that means nothing: it is another function every time
				make1 := s.lay(0, code)
				program := slices.Concat(make1, other(opForkAs, 1, nil), other(opForkAs, 0, on(2)), other(opForkAs, 2, on(1, on(0)...)), make1,
					other(opForwardAs, 1, on(2, fork(0, fork(1)...)...)))
				fut, err := f.Start(within(t, patience), []inject.Root{{Element: 0, Payload: payload(3, program)}}, inject.Options{})
				if err != nil {
					t.Fatal(err)
				}
				replies, err := wait(t, fut)
				want := assembled(3, program)
				slices.Sort(want)
				if got := sums(replies); err != nil || !slices.Equal(got, want) {
					t.Fatalf("%x, %v; want %x", got, err, want)
				}
			}
			eventually(t, func() string {
				for i, m := range s.nodes {
					if n := m.rt.Stats().Sizes.Made; n != 0 {
						return fmt.Sprintf("n%d keeps %d functions", i, n)
					}
					list, _ := m.rt.Functions(100)
					for _, fn := range list {
						if fn.Name == "maker.made" && (fn.Pinned || fn.Runs == 0 || fn.Failed != 0) {
							return fmt.Sprintf("n%d: %+v", i, fn)
						}
					}
				}
				return ""
			})
		})
	}
}

// TestAssembleMakes: a function that was made makes another one, of which the first maker knows nothing.
func TestAssembleMakes(t *testing.T) {
	s := newStreet(t)
	f := s.prepareImage(s.client, stepsImage(t, "maker", nil))
	first, second := s.lay(0, stepsCode(t)), s.lay(1, append(stepsCode(t), 0, 2, 1, 'x'))
	program := slices.Concat(first, other(opForwardAs, 1, slices.Concat(second, other(opForkAs, 2, on(0)), other(opForwardAs, 0, nil))))
	fut, err := f.Start(within(t, patience), []inject.Root{{Element: 0, Payload: payload(3, program)}}, inject.Options{})
	if err != nil {
		t.Fatal(err)
	}
	replies, err := wait(t, fut)
	want := assembled(3, program)
	slices.Sort(want)
	if got := sums(replies); err != nil || !slices.Equal(got, want) {
		t.Errorf("%x, %v; want %x", got, err, want)
	}
}

// TestAssembleRefused: what is no module, breaks a rule of images, is too large, or is one function too many; the caller hears what and where.
func TestAssembleRefused(t *testing.T) {
	s := newStreet(t)
	code := stepsCode(t)
	cut := code[:len(code)/2]
	imports := bytes.Replace(code, []byte("wherry\x05reply"), []byte("wherry\x05evils"), 1)
	for name, c := range map[string]struct {
		code []byte
		says string
	}{
		"nothing": {nil, "offset 0x0: not a WebAssembly binary"},
		"text":    {[]byte("no wasm module, only text"), "offset 0x0: not a WebAssembly binary"},
		"cut":     {cut, "offset"},
		"imports": {imports, `"evils"`},
	} {
		f := s.prepareImage(s.client, stepsImage(t, name, nil))
		lay := s.lay(0, c.code)
		fut, err := f.Start(within(t, patience), []inject.Root{{Element: 0, Payload: payload(3, lay, one(opFail, 0, 7))}}, inject.Options{})
		if err == nil {
			_, err = wait(t, fut)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if n := s.nodes[0].rt.Stats().Sizes.Made; n != 0 {
		t.Errorf("%d functions are kept", n)
	}
}

// TestAssembledTraps: what is wrong with instructions is found where the function runs first, and the call's error says which function it was.
func TestAssembledTraps(t *testing.T) {
	s := newStreet(t)
	f := s.prepareImage(s.client, stepsImage(t, "maker", func(m *image.Manifest) { m.Limits.HeapBytes = 1 << 20 }))
	code := stepsCode(t)
	for name, c := range map[string]struct {
		code  []byte
		steps []step
		says  string
	}{
		"trap": {code, one(opTrap, 0, 0), "maker.made"},
		"type": {smallModule(0x01), nil, "maker.made"},
	} {
		program := slices.Concat(s.lay(0, c.code), other(opForwardAs, 2, c.steps))
		fut, err := f.Start(within(t, patience), []inject.Root{{Element: 0, Payload: payload(3, program)}}, inject.Options{})
		if err == nil {
			_, err = wait(t, fut)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "n2") {
			t.Errorf("%s: %v, want %q on n2", name, err, c.says)
		}
	}
}

// smallModule is a function of these instructions.
func smallModule(body ...byte) []byte {
	section := func(id byte, b ...byte) []byte { return append([]byte{id, byte(len(b))}, b...) }
	export := func(name string, kind byte) []byte { return append(append([]byte{byte(len(name))}, name...), kind, 0) }
	body = append(append([]byte{0}, body...), 0x0b)
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), section(1, 1, 0x60, 2, 0x7f, 0x7f, 1, 0x7f), section(3, 1, 0), section(5, 1, 0, 1),
		section(7, slices.Concat([]byte{2}, export("memory", 2), export(abi.Entry, 0))...), section(10, append([]byte{1, byte(len(body))}, body...)...))
}
