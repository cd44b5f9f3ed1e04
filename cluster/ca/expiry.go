package ca

import (
	"log/slog"
	"time"
)

const (
	// RenewTime is how long before a certificate's end it should be renewed: its element begins to warn then.
	RenewTime = 30 * 24 * time.Hour
	// lastCall is when it warns once more.
	lastCall = 24 * time.Hour
)

// stage is how near a certificate's end is.
type stage int

const (
	stageGood stage = iota
	stageRenew
	stageLast
	stageOver
)

func stageOf(until, now time.Time) stage {
	switch left := until.Sub(now); {
	case left < 0:
		return stageOver
	case left <= lastCall:
		return stageLast
	case left <= RenewTime:
		return stageRenew
	}
	return stageGood
}

// reminder says of each certificate once at each stage that it should be renewed.
type reminder struct {
	until time.Time
	said  stage
}

// remind warns if there is something new to say.
func (r *reminder) remind(log *slog.Logger, cert string, until, now time.Time) {
	if !until.Equal(r.until) {
		*r = reminder{until: until}
	}
	at := stageOf(until, now)
	if at <= r.said {
		return
	}
	r.said = at
	if at == stageOver {
		log.Error("this element's own certificate has expired: peers refuse new connections, and it does not start again; have it renewed (wherry ca renew) and put it in the old one's place",
			"cert", cert, "until", until)
		return
	}
	log.Warn("this element's own certificate ends soon: have it renewed (wherry ca renew) and put it in the old one's place",
		"cert", cert, "until", until, "left", until.Sub(now).Round(time.Second))
}
