package libllvm

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/wherry-fabric/wherry/internal/compiler"
	"github.com/wherry-fabric/wherry/internal/jail"
)

// Describe loads the library and says what it is, and what this machine. A reason why nothing can be compiled here is part of the answer.
func Describe(path string) (*Library, compiler.Hello) {
	var h compiler.Hello
	l, err := Open(path)
	if err == nil {
		h.Compiler = "LLVM " + l.Version()
		h.Triple, h.CPU, h.Features, err = l.Host()
	}
	if err == nil { // so that nothing is looked up once the process is locked down
		_, err = l.targetMachine(Target{Triple: h.Triple, CPU: h.CPU, Features: h.Features})
		if err == nil {
			_, err = l.targetMachine(Target{Triple: h.Triple, CPU: h.CPU, Features: h.Features, Fast: true})
		}
	}
	if err != nil {
		h.Why = err.Error()
	}
	return l, h
}

// Serve makes this process a compiler, until the socket that it finds as compiler.Descriptor ends. It is locked down unless unconfined says that it is not to be.
func Serve(path string, unconfined bool) error {
	socket := os.NewFile(compiler.Descriptor, "requests")
	conn, err := net.FileConn(socket)
	if err != nil {
		return fmt.Errorf("descriptor %d is no socket: a node starts this program (%w); try --version", compiler.Descriptor, err)
	}
	socket.Close()
	l, h := Describe(path)
	if !unconfined {
		// Once everything is loaded. Without Landlock the filter of system calls keeps files away alone. Memory and time are bounded by the parent process.
		if _, err := jail.Enter(false); err != nil && h.Why == "" {
			h.Why = "compilers cannot be locked down here: " + err.Error() + "; where whoever signs functions is trusted with this machine, a node's unconfined_compiler: true has them compile all the same"
		}
	}
	rest := l.Rest
	if h.Why != "" {
		rest = nil
	} else {
		rest()
	}
	return compiler.Serve(conn, h, func(r compiler.Request) compiler.Answer {
		if h.Why != "" {
			return compiler.Answer{Failed: h.Why}
		}
		return l.answer(h, r)
	}, rest)
}

func (l *Library) answer(h compiler.Hello, r compiler.Request) compiler.Answer {
	t := Target{Triple: h.Triple, CPU: h.CPU, Features: h.Features, Level: r.Level, Fast: r.Fast, Constants: r.Constants}
	if r.Triple != "" && Arch(r.Triple) != Arch(h.Triple) {
		t.Triple, t.CPU, t.Features = r.Triple, "", ""
		if Arch(r.Triple) == "riscv64" {
			t.Features = leastRISCV
		}
	}
	object, err := l.Compile(r.Code, t, r.Imports)
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		return compiler.Answer{Refused: refused.Reason}
	case err != nil:
		return compiler.Answer{Failed: err.Error()}
	}
	return compiler.Answer{Object: object}
}
