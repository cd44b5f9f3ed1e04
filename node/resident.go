package node

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	// residentEvery is how often the kernel is asked at most.
	residentEvery = time.Second
	// residentCost bounds the part of the time that the asking may take: the kernel walks all page tables, some ms for each GiB.
	residentCost = 100
)

// resident is the memory that the process has. Its resident set (VmRSS) counts a page of a dataset once for each
// function that has it mapped as a window, so it can be a multiple of what there is. The proportional set size divides such a page among its mappings.
type resident struct {
	mu   sync.Mutex
	next time.Time
	last float64
}

// bytes is the figure, of now or of a little before; NaN if the kernel does not tell.
func (r *resident) bytes(now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.next) {
		return r.last
	}
	r.last = math.NaN()
	if b, ok := proportional(); ok {
		r.last = float64(b)
	}
	took := time.Since(now)
	r.next = now.Add(max(residentEvery, residentCost*took))
	return r.last
}

// proportional reads Pss, in /proc/self/smaps_rollup (Linux 4.14).
func proportional() (int64, bool) {
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) == 3 && string(f[0]) == "Pss:" && string(f[2]) == "kB" {
			kb, err := strconv.ParseInt(string(f[1]), 10, 64)
			return kb << 10, err == nil
		}
	}
	return 0, false
}
