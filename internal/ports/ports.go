// Package ports finds TCP ports for tests whose listeners must be named before they listen: nodes
// that know each other from the start, for one.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are sought below those that the kernel hands out by itself (from 32768), so that no other
// test gets one before its listener does.
const (
	first = 10000
	count = 20000
)

// mostTries bounds how many ports that are taken are passed over.
const mostTries = 100

// Free returns n ports of this machine's loopback that are free now, no two the same.
func Free(n int) ([]int, error) { return free(n, first, count) }

func free(n, first, count int) ([]int, error) {
	var found []int
	for taken := 0; len(found) < n; {
		port := first + rand.IntN(count)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			defer l.Close() // only at the end: it keeps the port from being found again
			found = append(found, port)
		} else if taken++; taken > mostTries {
			return nil, fmt.Errorf("too few ports between %d and %d are free: %w", first, first+count-1, err)
		}
	}
	return found, nil
}
