package wasm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"

	"golang.org/x/sys/cpu"

	"github.com/wherry-fabric/wherry/internal/codecache"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// Machine code is kept in a directory, one file per program variant. wazero has a file cache of its own, but it is unbounded, writes with
// an fsync on the path of the first use, and checks only a part of what it reads back, and that with
// a CRC: a damaged offset would be jumped to. So wazero gets a shelf in memory in the place of its directory (internal/shelf): what it
// makes goes into the cache from there, and on a hit the verified bytes are offered to it.
var cacheKind = codecache.Kind{Magic: "wherryMC", Suffix: ".wmc", Log: "wasm"}

// cacheKey names a variant's file: whatever changes the machine code is hashed in.
func cacheKey(id ID, checkStores bool) string {
	h := sha256.New()
	fmt.Fprintf(h, "%x %t wazero %s revision %d %s/%s", id, checkStores, wazeroVersion, wasmcode.Revision, runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(h, " %v %v", cpu.X86, cpu.ARM64)
	return hex.EncodeToString(h.Sum(nil)[:20])
}
