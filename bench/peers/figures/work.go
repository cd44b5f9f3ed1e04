package figures

import (
	"fmt"
	"strconv"
	"strings"
)

// Work is what a peer is asked to do.
type Work string

const (
	// Echo is 8 bytes there and back, one at a time.
	Echo Work = "echo"
	// Echo64 is the same with 64 under way at any time, from one goroutine where a library can.
	Echo64 Work = "echo64"
	// Get brings 1 MiB from the server into the client's buffer, one at a time.
	Get Work = "get1m"
	// Put brings 1 MiB from the client's buffer to the server, one at a time.
	Put Work = "put1m"
)

const (
	// EchoBytes is the payload of an echo.
	EchoBytes = 8
	// Depth is how many calls are under way at once, at most.
	Depth = 64
	// BulkBytes is the payload of Get and Put.
	BulkBytes = 1 << 20
	// Processes is how many clients the work of several processes has.
	Processes = 16
)

// Beginnings and end of the names of works that come with a number.
const (
	callersWord   = "callers"
	sizeWord      = "size"
	processesWord = "processes"
	manyWord      = "x64" // Depth
)

// Works are all of them, in the order they are shown: the four above, goroutines that each call and wait ("callers16"), echoes of
// a size by one goroutine and by Depth ("size8193", "size8193x64"), and client processes with one caller each ("processes16").
func Works() []Work {
	all := []Work{Echo, Echo64, Get, Put}
	for _, n := range []int{1, 4, 8, 16, Depth} {
		all = append(all, Work(callersWord+strconv.Itoa(n)))
	}
	for _, size := range []int{8192, 8193, 16384, 65536} {
		w := Work(sizeWord + strconv.Itoa(size))
		all = append(all, w, w+manyWord)
	}
	return append(all, Work(processesWord+strconv.Itoa(Processes)))
}

// number is what follows a word in the work's name; 0 if it has another name.
func (w Work) number(word string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(string(w), word), manyWord))
	return n
}

// Ordinary reports whether the work is what an ordinary program does: goroutines that call and wait, with payloads as they come. It
// is done by calls, and by nothing that has no calls.
func (w Work) Ordinary() bool {
	return w.number(callersWord) > 0 || w.number(sizeWord) > 0 || w.Clients() > 1
}

// Callers are the goroutines of a client that call.
func (w Work) Callers() int {
	switch {
	case w == Echo64 || strings.HasSuffix(string(w), manyWord):
		return Depth
	case w.number(callersWord) > 0:
		return w.number(callersWord)
	}
	return 1
}

// Clients are the client processes.
func (w Work) Clients() int { return max(w.number(processesWord), 1) }

// Bytes is the payload of one operation.
func (w Work) Bytes() int {
	switch {
	case w == Get || w == Put:
		return BulkBytes
	case w.number(sizeWord) > 0:
		return w.number(sizeWord)
	}
	return EchoBytes
}

// Title describes a work to people, with the unit of its figure.
func (w Work) Title() string {
	switch {
	case w == Echo:
		return "8-byte echo, one in flight: round trip, µs (less is better)"
	case w == Echo64:
		return "8-byte echo, 64 in flight: thousand calls/s (more is better)"
	case w == Get:
		return "1 MiB from the server, one in flight: GB/s (more is better)"
	case w == Put:
		return "1 MiB to the server, one in flight: GB/s (more is better)"
	case w.Clients() > 1:
		return fmt.Sprintf("8-byte calls, %d client processes: thousand calls/s (more is better)", w.Clients())
	case w.lessIsBetter():
		return fmt.Sprintf("calls of %d bytes, one goroutine: round trip, µs (less is better)", w.Bytes())
	case w.Ordinary():
		return fmt.Sprintf("calls of %d bytes, goroutines that call and wait: %d: thousand calls/s (more is better)", w.Bytes(), w.Callers())
	}
	return string(w)
}

// lessIsBetter reports whether the work's figure is a time.
func (w Work) lessIsBetter() bool { return w == Echo || w.number(sizeWord) > 0 && w.Callers() == 1 }
