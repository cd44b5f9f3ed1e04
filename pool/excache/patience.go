package excache

import (
	"sync"
	"time"
)

// patience is a timer for silence that counts in steps of lookTime. Where this process is stopped, or gets no processor, it goes on by one step, however long
// that lasts: an answer may lie here unread meanwhile.
type patience struct {
	mu    sync.Mutex
	timer *time.Timer
	steps int // that are left; 0: it is over, or was stopped
	over  func()
}

// afterSilence calls over, in a goroutine of its own, unless it is stopped before.
func afterSilence(over func()) *patience {
	p := &patience{steps: int(Silence / lookTime), over: over}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(lookTime, p.step)
	return p
}

func (p *patience) step() {
	p.mu.Lock()
	if p.steps == 0 {
		p.mu.Unlock()
		return
	}
	p.steps--
	over := p.steps == 0
	if !over {
		p.timer.Reset(lookTime)
	}
	p.mu.Unlock()
	if over {
		p.over()
	}
}

// stop ends it. over may run still.
func (p *patience) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = 0
	p.timer.Stop()
}
