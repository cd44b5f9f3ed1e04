package libllvm

import (
	"os"
	"testing"
)

// BenchmarkCompile makes objects for this machine of the papers' increment and of the pointer chase, by level of optimisation; O0 is the first tier.
func BenchmarkCompile(b *testing.B) {
	l := library(b, "")
	triple, cpu, features, err := l.Host()
	if err != nil {
		b.Skip(err)
	}
	chase, err := os.ReadFile("../../inject/xrdma/src/chase.c")
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range []struct{ name, source string }{
		{"increment", entry("wherry_window_t w; WHERRY_TRY(wherry_window(0, &w)); *(uint64_t *)w.addr += 1; return wherry_reply(w.addr, 8);")},
		{"chase", string(chase)},
	} {
		code := bitcode(b, f.source, triple, "-O2", "-DWHERRY_NO_MEMORY_FUNCTIONS", "-include", "string.h")
		for level := range 4 {
			b.Run(f.name+"/O"+string(rune('0'+level)), func(b *testing.B) {
				target := Target{Triple: triple, CPU: cpu, Features: features, Level: level, Fast: level == 0}
				for b.Loop() {
					if _, err := l.Compile(code, target, []string{"wherry_window", "wherry_reply", "wherry_forward", "wherry_self", "wherry_shard_rows", "wherry_owner", "wherry_elements", "wherry_log"}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
