package main

import (
	"fmt"
	"io"
	"os"

	"github.com/wherry-fabric/wherry/bench/peers/figures"
)

// clearLine takes a terminal's cursor to the beginning of an empty line.
const clearLine = "\r\033[K"

// sayer says how far a run is: on a terminal turn by turn, in one line; elsewhere a line per round.
type sayer struct {
	w        io.Writer
	terminal bool
	now, of  int // rounds
}

func newSayer(w io.Writer) *sayer {
	s := &sayer{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		s.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

func (s *sayer) round(now, of int) {
	s.now, s.of = now, of
	if !s.terminal {
		fmt.Fprintf(s.w, "round %d of %d\n", now, of)
	}
}

func (s *sayer) turn(now, of int, r *figures.Row) {
	if s.terminal {
		done := float64((s.now-1)*of+now-1) / float64(s.of*of)
		fmt.Fprintf(s.w, "%s%3.0f %% round %d of %d: %s %s", clearLine, 100*done, s.now, s.of, r.Label(), r.Work)
	}
}

func (s *sayer) failed(r *figures.Row, err error) {
	s.end()
	fmt.Fprintf(s.w, "%s %s: %v\n", r.Label(), r.Work, err)
}

func (s *sayer) end() {
	if s.terminal {
		fmt.Fprint(s.w, clearLine)
	}
}
