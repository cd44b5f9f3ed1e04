package cputime

import "time"

var start = time.Now()

// wall is for systems that do not tell a thread's time.
func wall() time.Duration { return time.Since(start) }
