package wire

import "time"

const (
	// MaxPathBytes bounds a path, as PATH_MAX does.
	MaxPathBytes = 4096
	// MaxNameBytes bounds one name of a directory, as NAME_MAX does.
	MaxNameBytes = 255
	// MaxIOBytes bounds one read or write: what a kernel sends at most in one request.
	MaxIOBytes = 1 << 20
	// MaxBatch bounds the entries in one answer to List: about 100 KiB with names of
	// ordinary length, so a few round trips for a large directory.
	MaxBatch = 1024
	// MaxOffset is the last offset that a file can have.
	MaxOffset = 1<<63 - 1
	// maxNsec is the most nanoseconds besides a time's seconds.
	maxNsec = 999_999_999
	// MinLease is the shortest lease: a client renews three times in each.
	MinLease = time.Second
	// MaxLease is the longest.
	MaxLease = time.Hour
)
