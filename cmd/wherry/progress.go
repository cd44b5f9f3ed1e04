package main

import (
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// bar shows progress on standard error if a person is looking and it takes
// longer than a second.
type bar struct {
	bar     *progressbar.ProgressBar
	started time.Time
	shown   bool

	stop    chan struct{} // of spin
	spinner sync.WaitGroup
}

const (
	barAfter = time.Second
	// spinEvery is how often what has no end to show is drawn again.
	spinEvery = 200 * time.Millisecond
	barWidth  = 30
	// drawEvery is how often a bar is drawn at most.
	drawEvery = 100 * time.Millisecond
)

func (a *app) bar(unit bool) *bar {
	b := &bar{started: time.Now()}
	if a.quiet || a.json || !isTerminal(a.err) {
		return b
	}
	b.bar = progressbar.NewOptions64(1, progressbar.OptionSetWriter(a.err), progressbar.OptionSetWidth(barWidth),
		progressbar.OptionClearOnFinish(), progressbar.OptionShowBytes(unit), progressbar.OptionThrottle(drawEvery),
		progressbar.OptionUseANSICodes(true))
	return b
}

// spinner is a bar for what has no known end: it shows what text says, again and again.
func (a *app) spinner(text func(since time.Duration) string) *bar {
	b := &bar{started: time.Now()}
	if a.quiet || a.json || !isTerminal(a.err) {
		return b
	}
	b.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(a.err), progressbar.OptionClearOnFinish(), progressbar.OptionSpinnerType(14),
		progressbar.OptionSetElapsedTime(false), progressbar.OptionUseANSICodes(true))
	b.stop = make(chan struct{})
	b.spinner.Go(func() {
		tick := time.NewTicker(spinEvery)
		defer tick.Stop()
		for {
			select {
			case <-b.stop:
				return
			case <-tick.C:
			}
			if since := time.Since(b.started); since >= barAfter {
				b.shown = true
				b.bar.Describe(text(since))
				b.bar.Add(1)
			}
		}
	})
	return b
}

// at moves the bar to done of total.
func (b *bar) at(text string, done, total int64) {
	if b.bar == nil || !b.shown && time.Since(b.started) < barAfter {
		return
	}
	b.shown = true
	b.bar.Describe(text)
	b.bar.ChangeMax64(max(total, 1))
	b.bar.Set64(done)
}

// end takes the bar off the screen; more than once does no more.
func (b *bar) end() {
	if b.stop != nil {
		close(b.stop)
		b.spinner.Wait()
		b.stop = nil
	}
	if b.bar != nil && b.shown {
		b.bar.Finish()
		b.shown = false
	}
}
