package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestPackBitcode: bitcode of each processor is refused by fn pack as nodes would refuse it, and where no compiler is there that is said.
func TestPackBitcode(t *testing.T) {
	dir, compiler := t.TempDir(), t.TempDir()
	clang, err := exec.LookPath("clang")
	if err != nil {
		t.Fatal(err)
	}
	crossBuild(t, "../wherry-llvm", runtime.GOARCH, filepath.Join(compiler, "wherry-llvm"))
	const good = "int wherry_reply(const void *, unsigned);\nint wherry_main(const void *p, unsigned n) { return wherry_reply(p, n); }\n"
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("good.c", good)
	write("bare.c", good)
	write("noentry.c", "int x;\n")
	write("asm.c", "int wherry_main(const void *p, unsigned n) { __asm__ volatile(\"nop\"); return 0; }\n")
	write("good.json", `{"name": "good", "start": "first", "imports": ["reply"]}`)
	pack := func(path, name, target string) (said string, ok bool) {
		t.Helper()
		made := exec.CommandContext(t.Context(), clang, "--target="+target+"-linux-gnu", "-O1", "-fPIC", "-emit-llvm", "-c", name+".c", "-o", name+".bc")
		made.Dir = dir
		if out, err := made.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", made, err, out)
		}
		_ = os.Remove(filepath.Join(dir, name+".wfn"))
		cmd := exec.CommandContext(t.Context(), os.Args[0], "fn", "pack", name+".bc", "--targets", target)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "WHERRY_TEST_RUN=1", "PATH="+path)
		out, _ := cmd.CombinedOutput()
		_, err := os.Stat(filepath.Join(dir, name+".wfn"))
		if code := cmd.ProcessState.ExitCode(); code != 0 && code != exitUsage || (code == 0) != (err == nil) {
			t.Errorf("%s: exit code %d, the image: %v", name, code, err)
		}
		return string(out), cmd.ProcessState.Success()
	}
	for _, target := range []string{"x86_64", "aarch64", "riscv64"} {
		for name, want := range map[string]string{
			"good":    "",
			"bare":    "bare.bc: no node would load it: it calls wherry_reply, which is no host call that its manifest lists in imports (none)",
			"noentry": "noentry.bc: no node would load it: it does not define wherry_main",
			"asm":     "asm.bc: no node would load it: the function wherry_main has inline assembly",
		} {
			said, ok := pack(compiler, name, target)
			if ok != (want == "") || !strings.Contains(said, want) || strings.Contains(said, "without a check") {
				t.Errorf("%s for %s: %v, %s", name, target, ok, said)
			}
		}
	}
	if said, ok := pack(dir, "noentry", "x86_64"); !ok || !strings.Contains(said, "noentry.bc is packed without a check, nodes will make it: wherry-llvm is neither beside this program nor on PATH") {
		t.Errorf("without a compiler: %v, %s", ok, said)
	}
}
