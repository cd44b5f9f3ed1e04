package inject_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma/gen/recipe"
)

// stepsModule is testdata/steps.c, compiled: the function that does what its payload says.
const stepsModule = "testdata/steps.wasm"

//go:generate go test -run TestStepsAreBuiltFromSource -update .
var update = flag.Bool("update", false, "write "+stepsModule)

// TestStepsAreBuiltFromSource: the committed module is what its source makes.
func TestStepsAreBuiltFromSource(t *testing.T) {
	tools, err := cbuild.FindToolsVersion(t.Context(), recipe.ClangMajor)
	if errors.Is(err, cbuild.ErrNoCompiler) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("testdata/steps.c")
	if err != nil {
		t.Fatal(err)
	}
	code, err := cbuild.Compile(t.Context(), cbuild.Source{Name: "steps.c", Code: source}, cbuild.Options{Tools: tools, Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(stepsModule, code, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if committed, err := os.ReadFile(stepsModule); err != nil || !bytes.Equal(code, committed) {
		t.Errorf("%s is not what testdata/steps.c makes (%v); run go generate ./inject", stepsModule, err)
	}
}

// stepsImage packs the function; change alters the manifest before that.
func stepsImage(t testing.TB, name string, change func(*image.Manifest)) *image.Image {
	t.Helper()
	return packSteps(t, name, 0, change)
}

// paddedImage packs it with so many bytes more.
func paddedImage(t testing.TB, name string, more int) *image.Image {
	t.Helper()
	return packSteps(t, name, more, nil)
}

func packSteps(t testing.TB, name string, more int, change func(*image.Manifest)) *image.Image {
	t.Helper()
	code, err := os.ReadFile(stepsModule)
	if err != nil {
		t.Fatal(err)
	}
	if more > 0 { // a section that engines pass over: of id 0, its size, its name's size, its name
		section := append([]byte{1, 'x'}, make([]byte, more)...)
		code = append(append(code, 0), binary.AppendUvarint(nil, uint64(len(section)))...)
		code = append(code, section...)
	}
	m := image.Manifest{Name: name, Windows: []image.Window{{Name: "words", Writable: true}}, Limits: abi.Limits{ReplyBytes: 1 << 20, RunTime: time.Hour}}
	if change != nil {
		change(&m)
	}
	img, err := image.Build(m, image.Entry{Form: image.Wasm, Code: code})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// step is one of the function's; the comments in testdata/steps.c say what each does.
type step struct {
	op, at uint8
	n      uint16
}

const (
	opNothing = iota
	opReply
	opPart
	opForward
	opFork
	opGet
	opPut
	opAdd
	opLoad
	opLog
	opSpin
	opHang
	opTrap
	opFail
	opScratch
	opEnd
	opTime
	opWait
	opForwardAs
	opForkAs
	opScratchCount
	opDerive
	opConstants
	opAssemble
	opGetNear
)

// on moves a branch on to an element, to do these steps there; fork has another branch do them.
func on(at uint8, steps ...step) []step { return other(opForward, at, steps) }

func fork(at uint8, steps ...step) []step { return other(opFork, at, steps) }

func other(op, at uint8, steps []step) []step {
	return append([]step{{op, at, uint16(len(steps))}}, steps...)
}

// payload is a program's, of lists of steps.
func payload(sum uint64, steps ...[]step) []byte {
	p := binary.LittleEndian.AppendUint64(nil, sum)
	for _, s := range slices.Concat(steps...) {
		p = binary.LittleEndian.AppendUint16(append(p, s.op, s.at), s.n)
	}
	return p
}

// one is a list of one step.
// farStatus is how a function notes ErrFar.
var farStatus = asNoted(abi.ErrFar)

func asNoted(st abi.Status) uint64 { return uint64(int64(st)) }

func one(op, at uint8, n uint16) []step { return []step{{op, at, n}} }

// padding makes a program too long for a message that leaves with a run's end.
var padding = make([]step, 40)

// model is what should become of a program: what a single machine makes of it.
type model struct {
	words   [][]uint64 // by element
	counts  []counts   // the same
	results []string   // of its branches, sorted
	logs    []string   // sorted
	failed  *travel.RemoteError
	near    bool // elements have each other's words mapped
}

// counts are what an element says of itself.
type counts struct{ began, ended, forwards, forks uint64 }

func newModel(elements int) *model {
	m := &model{counts: make([]counts, elements)}
	for range elements {
		m.words = append(m.words, make([]uint64, words))
	}
	return m
}

// words is how many each element has.
const words = 1024

func (m *model) play(at uint8, program []byte) *model {
	m.branch(at, program, nil)
	slices.Sort(m.results)
	slices.Sort(m.logs)
	return m
}

// branch goes on with a branch at an element; sent is what it has sent ahead.
func (m *model) branch(at uint8, program, sent []byte) {
	m.counts[at].began++
	m.counts[at].ended++
	r := &modelRun{model: m, at: at, sum: binary.LittleEndian.Uint64(program), sent: sent}
	for b := program[8:]; len(b) > 0; b = b[4:] {
		r.steps = append(r.steps, step{b[0], b[1], binary.LittleEndian.Uint16(b[2:])})
	}
	for i := 0; i < len(r.steps); i++ {
		next, ends := r.do(i)
		if ends {
			return
		}
		i = next
	}
	r.end(binary.LittleEndian.AppendUint64(r.sent[:len(r.sent):len(r.sent)], r.sum), true)
}

// modelRun is one run.
type modelRun struct {
	*model
	at             uint8
	sum            uint64
	steps          []step
	sent           []byte
	replied, moved bool
}

func (r *modelRun) note(v uint64) { r.sum = (r.sum^v)*0x9e3779b97f4a7c15 + 1 }

// may notes what a call says that only a branch which is here can make.
func (r *modelRun) may(ok bool) bool {
	st := abi.OK
	if !ok {
		st = abi.ErrDone
	}
	r.note(uint64(int64(st)))
	return ok
}

func (r *modelRun) bytes(n uint16) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.sum>>(i%8*8)) + byte(i)
	}
	return b
}

// do does a step; next is the last one that is not to be done any more.
func (r *modelRun) do(i int) (next int, ends bool) {
	s, m := r.steps[i], r.model
	word := &m.words[min(int(s.at), len(m.words)-1)][s.n%words]
	switch s.op {
	case opReply:
		data := append(r.sent[:len(r.sent):len(r.sent)], r.bytes(s.n)...)
		if r.may(!r.replied && !r.moved) {
			r.end(data, true)
			r.replied = true
		}
	case opPart:
		data := r.bytes(s.n)
		if r.may(!r.replied && !r.moved) {
			r.sent = append(r.sent, data...)
		}
	case opForward, opFork:
		program := payload(r.sum+uint64(i)+1, r.steps[i+1:i+1+int(s.n)])
		if s.op == opFork && r.may(!r.moved) {
			m.counts[r.at].forks++
			m.branch(s.at, program, nil)
		} else if s.op == opForward && r.may(!r.replied && !r.moved) {
			r.moved = true
			m.counts[r.at].forwards++
			m.branch(s.at, program, r.sent)
		}
		return i + int(s.n), false
	case opGet:
		r.note(0)
		r.note(*word)
	case opGetNear:
		if m.near || s.at == r.at {
			r.note(0)
			r.note(*word)
		} else {
			r.note(farStatus)
			r.note(0)
		}
	case opPut:
		*word = r.sum
		r.note(0)
	case opAdd:
		old := *word
		*word += r.sum
		r.note(0)
		r.note(old)
	case opLoad:
		r.note(m.words[r.at][s.n])
	case opLog:
		m.logs = append(m.logs, string(binary.LittleEndian.AppendUint64(nil, r.sum)))
	case opTrap:
		m.fail(r.at, travel.CodeTrap, 0)
		return i, true
	case opFail:
		m.fail(r.at, travel.CodeFunction, int32(s.n))
		return i, true
	case opScratch:
		r.note(0)
	case opHang: // something else ends it
		return i, true
	case opEnd:
		r.end(r.sent, len(r.sent) > 0)
		return i, true
	case opTime:
		r.note(0)
	}
	return i, false
}

// end ends the branch with a result, unless it is not here any more. One without any has none.
func (r *modelRun) end(result []byte, has bool) {
	if !r.replied && !r.moved && has {
		r.results = append(r.results, string(result))
	}
}

func (m *model) fail(at uint8, code travel.Code, status int32) {
	m.failed = &travel.RemoteError{Code: code, Status: status, Element: fmt.Sprintf("n%d", at)}
}

// matches says how a result differs from the model's, "" if it does not.
func (m *model) matches(results []string, err error) string {
	if m.failed != nil {
		var remote *travel.RemoteError
		if !errors.As(err, &remote) || remote.Code != m.failed.Code || remote.Status != m.failed.Status || remote.Element != m.failed.Element {
			return fmt.Sprintf("it ended with %v, want %v", err, m.failed)
		}
		return ""
	}
	if err != nil {
		return fmt.Sprintf("it failed: %v", err)
	}
	slices.Sort(results)
	if !slices.Equal(results, m.results) {
		return fmt.Sprintf("results %.200q, want %.200q", results, m.results)
	}
	return ""
}
