//go:build !linux

package cputime

import "time"

// Thread is the time that has passed: at least what the calling thread has used.
func Thread() time.Duration { return wall() }
