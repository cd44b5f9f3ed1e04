package stream

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

// TestCopy: every byte arrives and no other is touched, whatever the alignment, the length and the way.
func TestCopy(t *testing.T) {
	const around = 128
	src := make([]byte, 4*pieceBytes)
	for i := range src {
		src[i] = byte(i) ^ byte(i>>8) | 1
	}
	dst := make([]byte, len(src)+2*around)
	var c Copier
	for _, n := range []int{0, 1, 63, 64, 127, 4096, pieceBytes - 1, pieceBytes, pieceBytes + 1, 3*pieceBytes + 65} {
		for _, at := range [][2]int{{0, 0}, {1, 0}, {0, 1}, {63, 5}, {64, 64}, {7, 7}} {
			for way, fn := range map[string]func(dst, src []byte) int{
				"past the caches": Copy,
				"either way":      c.Copy,
				"through them":    func(dst, src []byte) int { c.begin(true); return c.Copy(dst, src) },
			} {
				clear(dst)
				to, from := dst[around+at[0]:][:n], src[at[1]:][:n]
				if got := fn(to, from); got != n || !bytes.Equal(to, from) {
					t.Fatalf("%s, %d bytes from %d to %d: %d, or others than they were", way, n, at[1], at[0], got)
				}
				if rest := append(bytes.Clone(dst[:around+at[0]]), dst[around+at[0]+n:]...); !bytes.Equal(rest, make([]byte, len(rest))) {
					t.Fatalf("%s, %d bytes from %d to %d: something beside them was written", way, n, at[1], at[0])
				}
			}
		}
	}
	for _, fn := range []func(dst, src []byte) int{Copy, c.Copy} {
		if n := fn(dst[:100], src); n != 100 {
			t.Errorf("into the shorter: %d bytes", n)
		}
		if n := fn(dst, src[:100]); n != 100 {
			t.Errorf("from the shorter: %d bytes", n)
		}
	}
}

// TestWay: a Copier goes through the caches while that is quick, past them where it is not, and looks again after a while.
func TestWay(t *testing.T) {
	var c Copier
	var clock time.Time
	var past, through int
	cost := time.Microsecond // of a piece through the caches
	wasPast := false
	now := func() time.Time { return clock }
	ends := false
	tick := func() time.Time { // it is asked before and after each piece
		if ends {
			if wasPast {
				past++
				clock = clock.Add(time.Microsecond)
			} else {
				through++
				clock = clock.Add(cost)
			}
			wasPast = false
		}
		ends = !ends
		return now()
	}
	buf := make([]byte, pieceBytes)
	pieces := func(n int) (viaMemory, viaCaches int) {
		past, through = 0, 0
		for range n {
			c.copy(buf, buf, tick, func(_, _ []byte) { wasPast = true })
		}
		return past, through
	}
	const term = termBytes / pieceBytes
	if p, h := pieces(term); p != term || h != 0 {
		t.Errorf("at first %d pieces go past the caches and %d through them, want %d and 0", p, h, term)
	}
	if p, h := pieces(10 * (term + 1)); p != 10 || h != 10*term {
		t.Errorf("while the caches are quick, %d pieces go past them and %d through them, want 10 and %d", p, h, 10*term)
	}
	cost = 3 * time.Microsecond // a microsecond too long
	if p, h := pieces(200); p != 0 || h != 200 {
		t.Errorf("%d pieces go past the caches, and %d through them, before they have lost more than they may", p, h)
	}
	cost = time.Microsecond
	pieces(200)
	cost = time.Second
	if p, h := pieces(11); p != 0 || h != 11 {
		t.Errorf("%d and %d: a few that take very long met something else", p, h)
	}
	cost = time.Microsecond
	pieces(term / 2)
	cost = 12 * time.Microsecond // ten too long
	tried := int(mostLost/(10*time.Microsecond)) + 1
	if p, h := pieces(tried + term); p != term || h != tried {
		t.Errorf("where the caches are slow, %d pieces go past them and %d through them, want %d and %d", p, h, term, tried)
	}
	if p, h := pieces(tried + term); p != term || h != tried {
		t.Errorf("after a term they were tried with %d pieces, want %d", h, tried)
	}
	cost = time.Microsecond
	if p, h := pieces(100); p != 0 || h != 100 {
		t.Errorf("once the caches are quick again, %d pieces go past them and %d through them", p, h)
	}
}

func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{pieceBytes, 1 << 20} {
		dst, src := make([]byte, n), make([]byte, n)
		var c Copier
		for name, fn := range map[string]func(dst, src []byte) int{
			"past": Copy, "copier": c.Copy, "plain": func(dst, src []byte) int { return copy(dst, src) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					fn(dst, src)
				}
			})
		}
	}
}
