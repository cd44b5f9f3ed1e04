//go:build !race

package tcp

const pooledAllocs = 0
