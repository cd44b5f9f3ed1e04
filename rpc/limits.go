package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc/exchange"
)

// Config describes a Peer. The zero value is usable.
type Config struct {
	Limits Limits
	// Callers see every call made here, Servers every call served here; the
	// first is the outermost.
	Callers []CallerInterceptor
	Servers []ServerInterceptor
	// Dial makes an endpoint to a Bulk's owner that there is none to yet, from the address that the
	// Bulk is bound to. Addresses come from peers: dial only where a peer may send you.
	// It is asked once at a time for each owner; the endpoint is used from then on, and is the program's to close.
	// Nil: only endpoints that there are already are used.
	Dial func(ctx context.Context, addr string) (*fabric.Endpoint, error)
	// Members has a Bulk that did not come from its owner be moved only over an endpoint of a member of the cluster, or one
	// that Dial made: an incarnation alone does not say whose memory it is, and with the move goes the key. Nodes set it.
	Members bool
	Log     *slog.Logger // nil: silent
}

// Limits bound everything that a Peer keeps. A zero field means its default.
type Limits struct {
	EagerBytes   int           // payloads up to it travel in the message; default 8 KiB to peers that map memory (shm), and what a message holds (63 KiB) to others, as long as the window has room for that
	MaxBytes     int           // one payload; default 16 MiB
	Calls        int           // calls being served that do not end at once (blocking, detached, large requests), of which one principal has three quarters at most; default 256
	CallsPerPeer int           // of them, for one endpoint; default 64
	Queued       int           // calls of one endpoint that wait until they may run; further ones are refused with ErrBusy, as are those that handlers make; default 1024, -1: none
	QueuedBytes  int64         // what those of all endpoints take, one-way calls (64 of an endpoint) aside, eight times what those of one may, and four thirds of what those of one principal may; default 64 MiB
	Outgoing     int           // own calls at once on one endpoint; default 1024
	BulkBytes    int64         // segments with requests that peers have not read, and as much each for requests that handlers make, for answers, and for answers that come here before they are waited for; of each, one endpoint has as much as it leaves to others; default 64 MiB
	RequestBytes int64         // large requests of peers, until their handlers have ended; one principal has as much as it leaves to others; default 256 MiB, or what MaxBytes takes
	PoolBytes    int64         // segments kept to be used again, and as much each for memory that peers' large requests, and answers, came in; default 16 MiB
	HeldBytes    int64         // answers that wait to be asked for, or for a segment; one endpoint has as much as it leaves to others; default 256 MiB, or what two of MaxBytes take
	CallTime     time.Duration // deadline of a call whose context has none; default 30 s
	MaxTime      time.Duration // the longest that a peer's call may run here; default 24 h
	LingerTime   time.Duration // how long a large request may take to be fetched, and waits for that after its call's end, and an answer in its segment, once for each MaxBytes that lie there; default 30 s
	NoteBytes    int           // one progress note; default 4 KiB
	NoteEvery    time.Duration // notes that follow more quickly replace each other; default 20 ms
}

const (
	defaultEagerBytes = 8 << 10 // 64 of them fit into the fabric's window with room to spare
	defaultMaxBytes   = 16 << 20
	defaultCalls      = 256
	defaultPerPeer    = 64
	defaultOutgoing   = 1024
	defaultQueued     = 1024
	defaultQueueBytes = 64 << 20
	defaultBulkBytes  = 64 << 20
	defaultReqBytes   = 256 << 20
	defaultPoolBytes  = 16 << 20
	defaultHeldBytes  = 256 << 20
	defaultCallTime   = 30 * time.Second
	defaultMaxTime    = 24 * time.Hour
	defaultLingerTime = 30 * time.Second
	defaultNoteBytes  = 4 << 10
	defaultNoteEvery  = 20 * time.Millisecond

	// smallAnswerBytes is the largest answer that travels on reserved credit: Limits.Outgoing of them
	// are far from what the fabric keeps for a peer that does not read. Larger ones have flow control.
	smallAnswerBytes = 1 << 10
	// maxNames bounds the calls that can be registered.
	maxNames = 4096
	// MaxNameBytes bounds a call's name.
	MaxNameBytes = 128
	// maxTextBytes bounds an error's text on its way back.
	maxTextBytes = 64 << 10
	// keptBytes is the most that an idle record keeps of an answer's memory, out of what Limits.PoolBytes leaves room for. keptShort it always keeps.
	keptBytes = 64 << 10
	keptShort = 512
	// keptScratch is the most that an endpoint keeps of the memory in which an answer was written.
	keptScratch = 16 << 10
)

func fill[T int | int64 | time.Duration](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}

// maxLimitBytes bounds every limit in bytes: no machine has that much memory, and sums of them stay in range.
const maxLimitBytes = 1 << 50

// longest bounds every time: what is longer is for ever, and sums of two stay in range.
const longest = time.Duration(1 << 61)

func (l *Limits) defaults() {
	fill(&l.EagerBytes, defaultEagerBytes)
	fill(&l.MaxBytes, defaultMaxBytes)
	fill(&l.Calls, defaultCalls)
	fill(&l.CallsPerPeer, defaultPerPeer)
	fill(&l.Queued, defaultQueued)
	fill(&l.QueuedBytes, defaultQueueBytes)
	fill(&l.Outgoing, defaultOutgoing)
	fill(&l.BulkBytes, defaultBulkBytes)
	fill(&l.RequestBytes, max(defaultReqBytes, l.largest()))
	fill(&l.PoolBytes, min(defaultPoolBytes, l.BulkBytes))
	fill(&l.HeldBytes, max(defaultHeldBytes, l.leastHeld()))
	fill(&l.CallTime, defaultCallTime)
	fill(&l.MaxTime, defaultMaxTime)
	fill(&l.LingerTime, defaultLingerTime)
	fill(&l.NoteBytes, defaultNoteBytes)
	fill(&l.NoteEvery, defaultNoteEvery)
	for _, d := range []*time.Duration{&l.CallTime, &l.MaxTime, &l.LingerTime, &l.NoteEvery} {
		*d = min(*d, longest)
	}
}

// largest is the segment that a payload of any size fits into.
func (l *Limits) largest() int64 { return classBytes(classOf(l.MaxBytes)) }

// leastHeld is room for one held answer: of any size, to a request of any size, which it may be a part of.
func (l *Limits) leastHeld() int64 { return 2*l.largest() + heldCost }

// Memory is what calls may take at most: segments, which are lent, and memory beside them, for requests and answers that are kept here and wait.
func (l Limits) Memory() (segments, heap int64) {
	l.defaults()
	return lentKinds*l.BulkBytes + 2*l.PoolBytes, l.RequestBytes + l.HeldBytes + l.QueuedBytes + l.BulkBytes + 2*l.PoolBytes
}

// mostEager is the largest payload that fits into a message with all that a head may have.
const mostEager = fabric.MaxMessageBytes - requestBytes - extHead - traceBytes - MaxTraceStateBytes

// Validate reports what is wrong with limits.
func (l Limits) Validate() error {
	l.defaults()
	switch {
	case l.EagerBytes < refBytes || l.EagerBytes > mostEager:
		return fmt.Errorf("rpc: EagerBytes %d: between %d and %d", l.EagerBytes, refBytes, mostEager)
	case l.NoteBytes < 0 || l.NoteBytes > mostEager:
		return fmt.Errorf("rpc: NoteBytes %d: at most %d", l.NoteBytes, mostEager)
	case l.MaxBytes < l.EagerBytes || int64(l.MaxBytes) > 1<<30:
		return fmt.Errorf("rpc: MaxBytes %d: between EagerBytes (%d) and 1 GiB", l.MaxBytes, l.EagerBytes)
	case max(l.BulkBytes, l.RequestBytes, l.HeldBytes, l.QueuedBytes) > maxLimitBytes:
		return fmt.Errorf("rpc: BulkBytes %d, RequestBytes %d, HeldBytes %d, QueuedBytes %d: at most %d each", l.BulkBytes, l.RequestBytes, l.HeldBytes, l.QueuedBytes, int64(maxLimitBytes))
	case l.BulkBytes < l.largest():
		return fmt.Errorf("rpc: BulkBytes %d: at least MaxBytes (%d), rounded up to a power of two", l.BulkBytes, l.MaxBytes)
	case l.RequestBytes < l.largest():
		return fmt.Errorf("rpc: RequestBytes %d: at least MaxBytes (%d), rounded up to a power of two", l.RequestBytes, l.MaxBytes)
	case l.PoolBytes < 0 || l.PoolBytes > l.BulkBytes:
		return fmt.Errorf("rpc: PoolBytes %d: at most BulkBytes (%d)", l.PoolBytes, l.BulkBytes)
	case l.HeldBytes < l.leastHeld():
		return fmt.Errorf("rpc: HeldBytes %d: at least %d, for MaxBytes %d", l.HeldBytes, l.leastHeld(), l.MaxBytes)
	case l.Calls < 1 || l.CallsPerPeer < 1 || l.Outgoing < 1 || l.Outgoing > exchange.MaxCalls:
		return fmt.Errorf("rpc: Calls %d, CallsPerPeer %d, Outgoing %d: at least 1 each, and Outgoing at most %d", l.Calls, l.CallsPerPeer, l.Outgoing, exchange.MaxCalls)
	case l.Queued < -1 || l.QueuedBytes < 0:
		return fmt.Errorf("rpc: Queued %d, QueuedBytes %d: neither can be negative, except for Queued -1 for none", l.Queued, l.QueuedBytes)
	case l.CallTime < 0 || l.MaxTime < 0 || l.LingerTime < 0 || l.NoteEvery < 0:
		return fmt.Errorf("rpc: CallTime %v, MaxTime %v, LingerTime %v, NoteEvery %v: none can be negative", l.CallTime, l.MaxTime, l.LingerTime, l.NoteEvery)
	}
	return nil
}
