package rpc

import (
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// Limits bound everything that a Peer keeps. A zero field means its default.
type Limits struct {
	EagerBytes   int           // payloads up to it travel in the message; default 8 KiB
	MaxBytes     int           // one payload; default 16 MiB
	Calls        int           // handlers at once; default 256
	CallsPerPeer int           // handlers at once for one endpoint; default 64
	Outgoing     int           // own calls at once on one endpoint; default 1024
	BulkBytes    int64         // own payloads lying in segments; default 64 MiB
	CallTime     time.Duration // deadline of a call whose context has none; default 30 s
	MaxTime      time.Duration // the longest that a peer's call may run here; default 24 h
	LingerTime   time.Duration // how long an answer waits in a segment to be fetched; default 30 s
	NoteBytes    int           // one progress note; default 4 KiB
	NoteEvery    time.Duration // notes that follow more quickly replace each other; default 20 ms
}

const (
	defaultEagerBytes = 8 << 10 // 64 of them fit into the fabric's reserved queue many times over
	defaultMaxBytes   = 16 << 20
	defaultCalls      = 256
	defaultPerPeer    = 64
	defaultOutgoing   = 1024
	defaultBulkBytes  = 64 << 20
	defaultCallTime   = 30 * time.Second
	defaultMaxTime    = 24 * time.Hour
	defaultLingerTime = 30 * time.Second
	defaultNoteBytes  = 4 << 10
	defaultNoteEvery  = 20 * time.Millisecond

	// maxSeenRanges bounds the gaps in the numbers of one peer's calls: an
	// honest peer leaves no more than it has calls under way.
	maxSeenRanges = 4096
	// maxNames bounds the calls that can be registered.
	maxNames = 4096
	// MaxNameBytes bounds a call's name.
	MaxNameBytes = 128
	// maxTextBytes bounds an error's text on its way back.
	maxTextBytes = 8 << 10
)

func fill[T int | int64 | time.Duration](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}

func (l *Limits) defaults() {
	fill(&l.EagerBytes, defaultEagerBytes)
	fill(&l.MaxBytes, defaultMaxBytes)
	fill(&l.Calls, defaultCalls)
	fill(&l.CallsPerPeer, defaultPerPeer)
	fill(&l.Outgoing, defaultOutgoing)
	fill(&l.BulkBytes, defaultBulkBytes)
	fill(&l.CallTime, defaultCallTime)
	fill(&l.MaxTime, defaultMaxTime)
	fill(&l.LingerTime, defaultLingerTime)
	fill(&l.NoteBytes, defaultNoteBytes)
	fill(&l.NoteEvery, defaultNoteEvery)
}

// Validate reports what is wrong with limits.
func (l Limits) Validate() error {
	l.defaults()
	const most = fabric.MaxMessageBytes - requestBytes
	switch {
	case l.EagerBytes < bulkBytes || l.EagerBytes > most:
		return fmt.Errorf("rpc: EagerBytes %d: between %d and %d", l.EagerBytes, bulkBytes, most)
	case l.NoteBytes < 0 || l.NoteBytes > most:
		return fmt.Errorf("rpc: NoteBytes %d: at most %d", l.NoteBytes, most)
	case l.MaxBytes < l.EagerBytes || int64(l.MaxBytes) > 1<<30:
		return fmt.Errorf("rpc: MaxBytes %d: between EagerBytes (%d) and 1 GiB", l.MaxBytes, l.EagerBytes)
	case l.BulkBytes < int64(l.MaxBytes):
		return fmt.Errorf("rpc: BulkBytes %d: at least MaxBytes (%d)", l.BulkBytes, l.MaxBytes)
	case l.Calls < 1 || l.CallsPerPeer < 1 || l.Outgoing < 1 || l.Outgoing >= maxSeenRanges:
		return fmt.Errorf("rpc: Calls %d, CallsPerPeer %d, Outgoing %d: at least 1 each, and Outgoing below %d", l.Calls, l.CallsPerPeer, l.Outgoing, maxSeenRanges)
	case l.CallTime < 0 || l.MaxTime < 0 || l.LingerTime < 0 || l.NoteEvery < 0:
		return fmt.Errorf("rpc: CallTime %v, MaxTime %v, LingerTime %v, NoteEvery %v: none can be negative", l.CallTime, l.MaxTime, l.LingerTime, l.NoteEvery)
	}
	return nil
}
