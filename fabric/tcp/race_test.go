//go:build race

package tcp

// pooledAllocs is how often a record may allocate besides: under the race
// detector sync.Pool, which crypto/tls seals with, forgets some of what it is given.
const pooledAllocs = 2
