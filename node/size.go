package node

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/memcg"
	"github.com/wherry-fabric/wherry/pool/component"
)

// Bytes is a size that is written with a unit: "4GiB", "500M", "65536". K, M, G
// and T (with or without iB) are powers of 1024; KB, MB, GB, TB powers of 1000.
type Bytes int64

var units = []struct {
	name string
	of   float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"t", 1 << 40}, {"b", 1},
}

// ParseBytes reads a size.
func ParseBytes(text string) (Bytes, error) {
	s, of := strings.ToLower(strings.TrimSpace(text)), 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, of = strings.TrimSpace(rest), u.of
			break
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v < 0 || math.IsNaN(v) || v*of > 1<<50 {
		return 0, fmt.Errorf("%q is not a size: write a number and a unit, as in 512MiB or 4G", text)
	}
	return Bytes(v * of), nil
}

// UnmarshalText reads a size.
func (b *Bytes) UnmarshalText(text []byte) (err error) {
	*b, err = ParseBytes(string(text))
	return err
}

func (b Bytes) String() string { return component.SizeText(int64(b)) }

// ownMemory is what this process can have of the machine's memory: all of it, or what its control groups allow; ok is false where the kernel does not say.
func ownMemory() (total Bytes, ok bool) {
	total, ok = machineMemory()
	if limit, bounded := memcg.Limit(); bounded && (!ok || Bytes(limit) < total) {
		return Bytes(limit), true
	}
	return total, ok
}

// machineMemory is the main memory and swap space of this machine; ok is false
// where the kernel does not say.
func machineMemory() (total Bytes, ok bool) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, false
	}
	return Bytes((uint64(info.Totalram) + uint64(info.Totalswap)) * uint64(info.Unit)), true
}
