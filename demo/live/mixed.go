package live

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/wherry-fabric/wherry/inject/llvm"
)

// Program starts nodes on one kind of processor.
type Program struct {
	Arch    string   // as Go calls it: "arm64"
	Command []string // starts the program in the role of a node: see Role
	// Emulated nodes run native code in their own process: no worker and no compiler can be locked down there.
	Emulated bool
	// Compiler starts wherry-llvm for that processor. Empty: its nodes run no bitcode.
	Compiler []string
}

// emulators are those of QEMU that run another processor's programs, by Go's names (Debian: qemu-user).
var emulators = map[string]string{"amd64": "qemu-x86_64", "arm64": "qemu-aarch64", "riscv64": "qemu-riscv64"}

// Mixed are the programs of a demo on unlike processors: amd64, arm64 and riscv64. self, with args, is the one for this
// machine's processor. The others are wherry-ARCH in dir, and QEMU emulates their processors. Where wherry-llvm-ARCH lies there too, with the
// libraries that it needs in libraries-ARCH, their nodes run bitcode too.
func Mixed(self, dir string, args ...string) ([]Program, error) {
	var out []Program
	var lacks []error
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		if arch == runtime.GOARCH {
			out = append(out, Program{Arch: arch, Command: append([]string{self}, args...)})
			continue
		}
		program := filepath.Join(dir, "wherry-"+arch)
		if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
			lacks = append(lacks, fmt.Errorf("there is no %s: in wherry's sources, make mixed makes it (CGO_ENABLED=0 GOARCH=%s go build -o %s ./cmd/wherry)", program, arch, program))
		} else if err != nil {
			lacks = append(lacks, err)
		}
		emulator, err := exec.LookPath(emulators[arch])
		if err != nil {
			lacks = append(lacks, fmt.Errorf("%w: it runs %s's programs here (Debian: apt-get install qemu-user)", err, arch))
		}
		p := Program{Arch: arch, Emulated: true, Command: append([]string{emulator, program}, args...)}
		from, err := filepath.Abs(dir) // compilers run in /
		if err != nil {
			lacks = append(lacks, err)
		}
		compiler, libraries := filepath.Join(from, llvm.Program+"-"+arch), filepath.Join(from, "libraries-"+arch)
		if _, err := os.Stat(compiler); err == nil {
			p.Compiler = []string{emulator, "-L", libraries, compiler}
		}
		out = append(out, p)
	}
	return out, errors.Join(lacks...)
}

// processors are those of n nodes, which take the programs in turn; none if all are this machine's.
func processors(programs []Program, n int) []string {
	if len(programs) < 2 {
		return nil
	}
	out := make([]string, n)
	for i := range out {
		out[i] = programs[i%len(programs)].Arch
		if programs[i%len(programs)].Emulated {
			out[i] += " (emulated)"
		}
	}
	return out
}
