package native

import (
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// quietHost takes answers and keeps nothing.
type quietHost struct{ fakeHost }

func (h *quietHost) Reply([]byte) abi.Status { return abi.OK }

// BenchmarkRun is a run that answers its payload, on a worker that is there: there and back once, or twice with a host call
// that the node answers.
func BenchmarkRun(b *testing.B) { benchmarkRun(b, newEngine(b, Config{})) }

// BenchmarkInside is the same in this process.
func BenchmarkInside(b *testing.B) { benchmarkRun(b, inside(b, Config{})) }

func benchmarkRun(b *testing.B, e *Engine) {
	object, err := compileFile("testdata/echo.c")
	bd := bind(b, loadObject(b, e, object, err, abi.Limits{}), "alice")
	in := acquire(b, bd)
	defer in.Release()
	for _, c := range []struct {
		name    string
		payload []byte
	}{{"empty", make([]byte, 8)}, {"call", make([]byte, 16)}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			h := &quietHost{}
			for b.Loop() {
				if _, err := in.Run(c.payload, nil, h); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStart is a worker's making and end.
func BenchmarkStart(b *testing.B) {
	e := newEngine(b, Config{})
	bd := bind(b, load(b, e, abi.Limits{}), "alice").(*bound)
	for b.Loop() {
		p, err := bd.process(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		p.end()
	}
}
