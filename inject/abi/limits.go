package abi

import "time"

// DefaultLimits are the limits of a function that asks for none.
func DefaultLimits() Limits {
	return Limits{
		HeapBytes:    16 << 20,
		ScratchBytes: 4 << 20,
		PayloadBytes: 1 << 20,
		ReplyBytes:   1 << 20,
		RunTime:      time.Second,
		Forks:        1024,
		LogBytes:     4 << 10,
	}
}

// DefaultCeilings are the highest limits that a function gets.
func DefaultCeilings() Limits {
	return Limits{
		HeapBytes:    256 << 20,
		ScratchBytes: 1 << 30,
		PayloadBytes: 64 << 20,
		ReplyBytes:   64 << 20,
		RunTime:      time.Minute,
		Forks:        1 << 16,
		LogBytes:     64 << 10,
	}
}

// Or is l with those of defaults in place of its zero fields.
func (l Limits) Or(defaults Limits) Limits {
	set(&defaults.HeapBytes, l.HeapBytes)
	set(&defaults.ScratchBytes, l.ScratchBytes)
	set(&defaults.PayloadBytes, l.PayloadBytes)
	set(&defaults.ReplyBytes, l.ReplyBytes)
	set(&defaults.RunTime, l.RunTime)
	set(&defaults.Forks, l.Forks)
	set(&defaults.LogBytes, l.LogBytes)
	return defaults
}

func set[T uint64 | uint32 | time.Duration](to *T, v T) {
	if v != 0 {
		*to = v
	}
}

// AtMost is the lower of both, field by field.
func (l Limits) AtMost(ceilings Limits) Limits {
	l.HeapBytes = min(l.HeapBytes, ceilings.HeapBytes)
	l.ScratchBytes = min(l.ScratchBytes, ceilings.ScratchBytes)
	l.PayloadBytes = min(l.PayloadBytes, ceilings.PayloadBytes)
	l.ReplyBytes = min(l.ReplyBytes, ceilings.ReplyBytes)
	l.RunTime = min(l.RunTime, ceilings.RunTime)
	l.Forks = min(l.Forks, ceilings.Forks)
	l.LogBytes = min(l.LogBytes, ceilings.LogBytes)
	return l
}

// The limits that host calls are refused for, as in a manifest.
const (
	LimitPayload = "payload_bytes"
	LimitReply   = "reply_bytes"
	LimitForks   = "forks"
	LimitScratch = "scratch_bytes"
)

// Value is the limit that a manifest calls by that name, of those that host calls are refused for.
func (l *Limits) Value(field string) uint64 {
	switch field {
	case LimitPayload:
		return l.PayloadBytes
	case LimitReply:
		return l.ReplyBytes
	case LimitScratch:
		return l.ScratchBytes
	}
	return uint64(l.Forks)
}

// Refused tells a host which limit the engine refuses a host call for: run are the run's limits, program those of its program, and
// ceilings the engine's.
func Refused(h Host, field string, run, program, ceilings *Limits) Status {
	if t, ok := h.(LimitTeller); ok {
		limit, ceiling := run.Value(field), ceilings.Value(field)
		if limit < program.Value(field) || limit >= ceiling { // the run's own, or as high as can be
			ceiling = 0
		}
		t.OverLimit(field, limit, ceiling)
	}
	return ErrLimit
}
