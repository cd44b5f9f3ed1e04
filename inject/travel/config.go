package travel

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/wherry-fabric/wherry/internal/share"
)

const (
	// DefaultHops is the hop budget where StartArgs names none.
	DefaultHops = 1024
	// DefaultBranches is Limits.Branches where it is not set.
	DefaultBranches = 65536
	// MaxHops is what 12 bits hold. As a budget it means none: hops are not counted, and the deadline alone ends what goes
	// round for ever.
	MaxHops = 1<<12 - 1
	// MaxPeers is the most that Limits.Peers can be.
	MaxPeers = 1 << 16
	// MaxSlots is how many bindings an element has handles for: 12 bits of a
	// handle are its slot, 4 its generation.
	MaxSlots = 1 << 12
	// WindowTransfers is how far a link direction's transfer numbers may run
	// ahead of the lowest unaccepted one. The receiver's bitmap has as many bits (512 bytes).
	WindowTransfers = 4096
	// reportTransfers is the part of the window kept for reports (DONE, LOST,
	// lists of forks), so that a link full of injections can still report.
	reportTransfers = 1024
	// MaxMessageBytes bounds a message: one 64 KiB fragment of the fabric.
	MaxMessageBytes = 64 << 10
	// MaxDataBytes bounds a payload, a part, and a reply: what the longest head
	// (a declaration, a trace, 512 forks) leaves, so that a size that fits once
	// fits always.
	MaxDataBytes = 59 << 10
	// MaxConstantsBytes bounds the constants of a derived function.
	MaxConstantsBytes = 4 << 10
	// derivedForks is how many forks the head of a branch may have that goes on as a derived function: both together leave MaxDataBytes.
	derivedForks = 64
	// InlineObjectBytes is how much code and table a first message carries; larger
	// objects are asked for.
	InlineObjectBytes = 32 << 10
	// ChunkBytes is one chunk of an object: well below a frame, so that it
	// shares a link with others.
	ChunkBytes = 48 << 10
	// needChunks is how many chunks one NEED asks for: 192 KiB a round trip
	// leaves most of the reserved room to replies.
	needChunks = 4
	// ackAfter is how many acknowledgements make an ACK go out at once.
	ackAfter = 256
	// ackDelay bounds how long an acknowledgement waits for company: an ACK costs as much as a
	// forward, and until it comes the sender only keeps a record longer than it must.
	ackDelay = Instant(20 * time.Millisecond)
	// stowDelay is how often room is looked for while branches wait to leave: no event tells of the peer's credit.
	stowDelay = Instant(time.Millisecond)
	// reportTime is how much earlier a branch's time ends elsewhere than at its
	// origin, so that the element where that happens can say so.
	reportTime = Instant(5 * time.Millisecond)
	// maxText bounds an error's text on the wire.
	maxText = 8 << 10
	// maxName bounds an element's or function's name on the wire (one length byte).
	maxName = 255
	// listForks is how many forks a branch remembers before it sends the list
	// ahead: 4 KiB in a DONE or a forward.
	listForks = 512
	// maxLists bounds the lists one branch sends ahead (one bitmap word at the origin).
	maxLists = 64
	// runOverheadBytes is charged per held run on top of its payload: about
	// what its records take.
	runOverheadBytes = 512
	// fetchTries is how often one source is asked in vain before the next one.
	fetchTries = 4
	// fetchSources bounds the peers asked for one object.
	fetchSources = 8
	// nearInvocations is how many invocations are found without hashing: 12 KiB.
	nearInvocations = 512
	// never is later than any Instant.
	never = Instant(math.MaxInt64)
	// maxSeq is the last sequence number: 40 bits, 12 days at a million a second.
	maxSeq = 1<<40 - 1
	// maxTime is what a deadline's 16 bits can say (about 50 days).
	maxTime = 4095 << 30 * time.Microsecond
)

// Limits bound every table of a core. Zero fields take the default. All of
// them exist so that no peer can make an element's memory grow without end.
type Limits struct {
	Peers       int // endpoints at once (default 1024; Peer numbers are below it)
	Futures     int // futures at once started here (65536)
	Invocations int // invocations at once that have something here (131072)
	Running     int // runs at once handed to the runtime (4096)
	// Held runs are those parked for code or for room, queued, or waiting for their turn.
	HeldRuns           int // (65536)
	HeldBytes          int // (64 MiB)
	PrincipalHeldRuns  int // of one principal (16384)
	PrincipalHeldBytes int // (16 MiB; so much again for reports to one origin that wait for its acknowledgements)
	// BacklogBytes bound what waits beyond held runs: what arrives while the element's own forks wait, and what can wait nowhere else.
	BacklogBytes          int // (1 GiB)
	PrincipalBacklogBytes int // of one principal (three quarters of BacklogBytes)
	Records               int // messages not yet acknowledged (131072); of one principal three quarters of them
	Tombstones            int // of canceled invocations (16384)
	Stateful              int // invocations that may keep scratch here, and those that lapsed here with scratch (16384)
	// PrincipalStateful are those of one principal's (seven eighths of Stateful).
	PrincipalStateful int
	Bindings          int           // (MaxSlots, which is also the most); of one principal's runs three quarters of them
	Made              int           // functions that runs of calls under way have made here (512); of one principal three quarters of them
	Fetches           int           // objects being asked for (256); of one principal three quarters of them
	ObjectBytes       int           // one object (16 MiB)
	FetchBytes        int           // all objects being put together (64 MiB); of one principal three quarters of it
	OutboxBytes       int           // reports waiting for room, per peer (1 MiB)
	Workers           int           // of one invocation that keeps scratch, at work here at once (MaxWorkers, which is also the most); of another one Running bounds them, as all branches
	Branches          uint32        // of one invocation, under way at once (65536)
	Parts             uint32        // per branch (4096)
	MaxTime           time.Duration // a deadline's distance (24 h, at most 50 days)
	TombstoneTime     time.Duration // least life of a tombstone (1 s)
	FetchRetry        time.Duration // between two requests for the same chunks (50 ms)
	RoomPatience      time.Duration // from when on a branch that waits for room takes it from idle, younger ones (50 ms)
	IdleUnpin         time.Duration // an unused binding lets go of its objects (1 s)
}

// Config is what New needs.
type Config struct {
	// Self is this element's incarnation: random, never 0.
	Self uint64
	// Name is this element's name in errors.
	Name string
	// Epoch is the wall clock at Instant 0, in Unix nanoseconds: invocations tell their age by it.
	Epoch int64
	// HashSeed makes the hash tables' order unguessable; any value works.
	HashSeed uint64
	Limits   Limits
	Store    Store
	Effects  Effects
}

func def[T int | uint32 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

func (l *Limits) setDefaults() {
	def(&l.Peers, 1024)
	def(&l.Futures, 65536)
	def(&l.Invocations, 131072)
	def(&l.Running, 4096)
	def(&l.HeldRuns, 65536)
	def(&l.HeldBytes, 64<<20)
	def(&l.PrincipalHeldRuns, 16384)
	def(&l.PrincipalHeldBytes, 16<<20)
	def(&l.BacklogBytes, 1<<30)
	def(&l.PrincipalBacklogBytes, share.Of(l.BacklogBytes))
	def(&l.Records, 131072)
	def(&l.Tombstones, 16384)
	def(&l.Stateful, 16384)
	def(&l.PrincipalStateful, max(l.Stateful-l.Stateful/8, 1))
	def(&l.Bindings, MaxSlots)
	def(&l.Made, min(512, max(l.Bindings/8, 1)))
	def(&l.Fetches, 256)
	def(&l.ObjectBytes, 16<<20)
	def(&l.FetchBytes, 64<<20)
	def(&l.OutboxBytes, 1<<20)
	def(&l.Workers, MaxWorkers)
	def(&l.Branches, DefaultBranches)
	def(&l.Parts, 4096)
	def(&l.MaxTime, 24*time.Hour)
	def(&l.TombstoneTime, time.Second)
	def(&l.FetchRetry, 50*time.Millisecond)
	def(&l.RoomPatience, 50*time.Millisecond)
	def(&l.IdleUnpin, time.Second)
}

// Validate reports the first field that cannot work, and what would.
func (c *Config) Validate() error {
	if c.Self == 0 {
		return errors.New("travel: Config.Self is 0; draw a random incarnation at every start")
	}
	if c.Store == nil || c.Effects == nil {
		return errors.New("travel: Config.Store and Config.Effects must be set")
	}
	if len(c.Name) > maxName {
		return fmt.Errorf("travel: Config.Name has %d bytes, at most %d fit", len(c.Name), maxName)
	}
	l := c.Limits
	l.setDefaults()
	for _, f := range []struct {
		name     string
		got, max int
	}{
		{"Peers", l.Peers, MaxPeers}, {"Futures", l.Futures, 1 << 24}, {"Invocations", l.Invocations, 1 << 24},
		{"Running", l.Running, 1 << 20}, {"HeldRuns", l.HeldRuns, 1 << 24}, {"HeldBytes", l.HeldBytes, 1 << 40},
		{"PrincipalHeldRuns", l.PrincipalHeldRuns, 1 << 24}, {"PrincipalHeldBytes", l.PrincipalHeldBytes, 1 << 40},
		{"BacklogBytes", l.BacklogBytes, 1 << 40}, {"PrincipalBacklogBytes", l.PrincipalBacklogBytes, l.BacklogBytes},
		{"Records", l.Records, 1 << 24}, {"Tombstones", l.Tombstones, 1 << 24}, {"Stateful", l.Stateful, 1 << 24}, {"PrincipalStateful", l.PrincipalStateful, l.Stateful}, {"Bindings", l.Bindings, MaxSlots}, {"Made", l.Made, l.Bindings},
		{"Fetches", l.Fetches, 1 << 16}, {"ObjectBytes", l.ObjectBytes, ChunkBytes * (1<<16 - 1)},
		{"FetchBytes", l.FetchBytes, 1 << 40}, {"OutboxBytes", l.OutboxBytes, 1 << 40},
		{"Workers", l.Workers, MaxWorkers}, {"Branches", int(l.Branches), 1 << 24}, {"Parts", int(l.Parts), 1 << 20},
		{"MaxTime", int(l.MaxTime), int(maxTime)}, {"TombstoneTime", int(l.TombstoneTime), int(maxTime)},
		{"FetchRetry", int(l.FetchRetry), int(time.Hour)}, {"RoomPatience", int(l.RoomPatience), int(maxTime)}, {"IdleUnpin", int(l.IdleUnpin), int(maxTime)},
	} {
		if f.got < 1 || f.got > f.max {
			return fmt.Errorf("travel: Limits.%s is %d; it must be in 1…%d, or 0 for the default", f.name, f.got, f.max)
		}
	}
	return nil
}
