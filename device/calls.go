package device

import (
	"errors"
	"fmt"
)

// The calls that a lender serves.
const (
	CallList   = "wherry.dev.list"   // Nothing → ListReply
	CallStat   = "wherry.dev.stat"   // NameRequest → Info
	CallGrant  = "wherry.dev.grant"  // GrantRequest → Nothing
	CallBorrow = "wherry.dev.borrow" // BorrowRequest → BorrowReply
	CallWindow = "wherry.dev.window" // WindowRequest → WindowReply
	CallQueue  = "wherry.dev.queue"  // QueueRequest → QueueReply
	CallReturn = "wherry.dev.return" // LeaseRequest → Nothing

	CallUnwindow = "wherry.dev.unwindow" // UnwindowRequest → Nothing, once nothing uses the memory
	CallUnqueue  = "wherry.dev.unqueue"  // UnqueueRequest → Nothing, once none of its commands is under way
	CallShadow   = "wherry.dev.shadow"   // ShadowRequest → Nothing
)

var (
	// ErrNoDrive: the lender has no such device, or the asker may not see it.
	ErrNoDrive = errors.New("no such device")
	// ErrNoLease: there is no such lease, or it is another's.
	ErrNoLease = errors.New("no such lease")
	// ErrBusy: another lease has what was asked for.
	ErrBusy = errors.New("the device is lent")
	// ErrSpec: a request makes no sense.
	ErrSpec = errors.New("bad request to a device")
	// ErrLimit: a bound is reached.
	ErrLimit = errors.New("too much of a device")
)

// Mode is what a lease shares with others.
type Mode string

const (
	Exclusive Mode = "exclusive" // nobody else has any of these blocks
	Shared    Mode = "shared"    // others may read and write them too
	Read      Mode = "read"      // this borrower reads, and others may do both
)

// Modes are all modes.
var Modes = []Mode{Exclusive, Shared, Read}

// Validate reports a mode that there is not.
func (m Mode) Validate() error {
	switch m {
	case Exclusive, Shared, Read:
		return nil
	}
	return fmt.Errorf("%w: mode %.32q: it is exclusive, shared or read", ErrSpec, string(m))
}

// Nothing is a body without members.
type Nothing struct{}

// NameRequest names a device.
type NameRequest struct {
	Name string `json:"name"`
}

// GrantRequest sets what a principal may do with a device.
type GrantRequest struct {
	Name   string `json:"name"`
	To     string `json:"to"`
	Rights string `json:"rights"` // r: leases of mode read; rw: of every mode; none
}

// BorrowRequest asks for a lease.
type BorrowRequest struct {
	Name   string `json:"name"`
	Mode   Mode   `json:"mode"`
	Offset uint64 `json:"offset,omitempty"` // of the part that is asked for, in bytes
	Size   uint64 `json:"size,omitempty"`   // 0: all from Offset
}

// BorrowReply is a lease.
type BorrowReply struct {
	LeaseInfo
	SizeBytes    uint64 `json:"size_bytes"`
	BlockBytes   uint64 `json:"block_bytes"`
	ReadOnly     bool   `json:"read_only"`
	MaxTransfer  uint64 `json:"max_transfer"`  // bytes of one command
	MaxEntries   uint32 `json:"max_entries"`   // of a queue
	MaxQueues    uint16 `json:"max_queues"`    // of the lease
	RegistersKey []byte `json:"registers_key"` // an encoded fabric.Key
}

// WindowRequest opens memory of the borrower to the device.
type WindowRequest struct {
	Lease  uint64 `json:"lease"`
	Window uint32 `json:"window"` // 1 to MaxWindows
	Key    []byte `json:"key"`    // an encoded fabric.Key
	Place  *Place `json:"place,omitempty"`
}

// Place says where a window lies, if it is not all of what the key leads to, at Address(Window, 0).
type Place struct {
	Base   uint64 `json:"base"`   // the first address of the window
	Offset uint64 `json:"offset"` // where it begins in the memory
	Size   uint64 `json:"size"`
}

// UnwindowRequest takes memory back. The queues in it go too.
type UnwindowRequest struct {
	Lease  uint64 `json:"lease"`
	Window uint32 `json:"window"`
}

// WindowReply says how the device reaches the memory.
type WindowReply struct {
	Mapped bool `json:"mapped"` // by loads and stores; else by Puts, and no commands may lie there
}

// QueueRequest makes a queue pair.
type QueueRequest struct {
	Lease   uint64 `json:"lease"`
	Queue   uint16 `json:"queue"`   // from 1
	Entries uint32 `json:"entries"` // of each of the two
	// Commands is where the submission queue lies. With 0 it lies at the lender, followed by BufferBytes for data to be written.
	Commands    uint64 `json:"commands,omitempty"`
	BufferBytes uint64 `json:"buffer_bytes,omitempty"`
	Completions uint64 `json:"completions"` // where the completion queue lies
	// CompletionEntries are the completion queue's, if they are not Entries.
	CompletionEntries uint32 `json:"completion_entries,omitempty"`
	// Bell is a word of 8 bytes that goes up by one with each completion, from what it is when the queue is made. It is rung after each, and the completions themselves ring
	// nothing. 0: there is none.
	Bell uint64 `json:"bell,omitempty"`
}

// UnqueueRequest deletes a queue pair.
type UnqueueRequest struct {
	Lease uint64 `json:"lease"`
	Queue uint16 `json:"queue"`
}

// ShadowRequest says where the borrower writes its doorbells, and where the lender writes when it wants a register rung: two pages, as
// NVMe's Doorbell Buffer Config has them. 0 and 0: all doorbells are registers.
type ShadowRequest struct {
	Lease     uint64 `json:"lease"`
	Doorbells uint64 `json:"doorbells"`
	Events    uint64 `json:"events"`
}

// QueueReply has the key to a submission queue at the lender.
type QueueReply struct {
	Key []byte `json:"key,omitempty"`
}

// LeaseRequest names a lease.
type LeaseRequest struct {
	Lease uint64 `json:"lease"`
}

// Info describes a device.
type Info struct {
	Name       string            `json:"name"`
	Node       string            `json:"node"`
	Class      string            `json:"class"` // nvme
	SizeBytes  uint64            `json:"size_bytes"`
	BlockBytes uint64            `json:"block_bytes"`
	Modes      []Mode            `json:"modes"` // that the asker may borrow it in
	ReadOnly   bool              `json:"read_only"`
	Leases     []LeaseInfo       `json:"leases"` // of others only for an admin: without principals else
	Grants     map[string]string `json:"grants,omitempty"`
}

// LeaseInfo describes a lease.
type LeaseInfo struct {
	ID        uint64 `json:"id"`
	Principal string `json:"principal,omitempty"`
	Mode      Mode   `json:"mode"`
	State     string `json:"state"`
	Offset    uint64 `json:"offset"`
	Size      uint64 `json:"size"`
	Queues    int    `json:"queues"`
	Windows   int    `json:"windows"`
	Inflight  int    `json:"inflight"`
	Commands  uint64 `json:"commands"` // so far
}

// ListReply lists devices, by name.
type ListReply struct {
	Devices []Info `json:"devices"`
}
