package nvme

import "encoding/binary"

// CommandBytes and CompletionBytes are the sizes of an entry of a submission queue and of a completion queue.
const (
	CommandBytes    = 64
	CompletionBytes = 16
)

// BlockBytes is the size of a logical block.
const BlockBytes = 512

// Namespace is the number of a lease's only namespace.
const Namespace = 1

// MaxTransferBytes bounds the data of one command. It is what one turn of the leader may take (see turnBytes), so that messages wait for no more than that.
const MaxTransferBytes = 256 << 10

// Opcode is what a command does.
type Opcode uint8

const (
	OpFlush       Opcode = 0x00
	OpWrite       Opcode = 0x01
	OpRead        Opcode = 0x02
	OpCompare     Opcode = 0x05
	OpWriteZeroes Opcode = 0x08
	OpDataset     Opcode = 0x09 // Dataset Management: ranges to deallocate

	OpReservationRegister Opcode = 0x0d
	OpReservationReport   Opcode = 0x0e
	OpReservationAcquire  Opcode = 0x11
	OpReservationRelease  Opcode = 0x15
)

// Command is what a submission queue's entry says; fields that no command here uses are left out.
type Command struct {
	Op     Opcode
	Fused  uint8 // of two commands, the first or second
	SGL    bool  // data is one SGL data block; else PRPs say where it is
	ID     uint16
	NS     uint32
	Data   [2]uint64 // PRP 1 and 2, or an SGL descriptor
	Block  uint64    // the first; of reservation commands dwords 10 and 11
	Blocks uint32    // how many; of Dataset Management the ranges
	FUA    bool      // durable when it completes
	Free   bool      // Dataset Management: deallocate
}

const (
	flagFUA      = 1 << 30 // of dword 12
	attrFree     = 1 << 2  // of dword 11, Dataset Management
	fusedFirst   = 1       // of byte 1: the first of two commands that are carried out as one
	fusedSecond  = 2
	psdtShift    = 6  // of byte 1
	sglDataBlock = 0  // type, in the upper half of the descriptor's last byte
	rangeBytes   = 16 // of Dataset Management
	maxRanges    = 256
	blocksMask   = 0xffff
)

// Decode reads an entry. Whatever it says, it is a Command: what makes no sense is found out when it is carried out.
func Decode(e *[CommandBytes]byte) Command {
	le := binary.LittleEndian
	c := Command{Op: Opcode(e[0]), Fused: e[1] & 3, SGL: e[1]>>psdtShift == 1, ID: le.Uint16(e[2:]), NS: le.Uint32(e[4:]),
		Data: [2]uint64{le.Uint64(e[24:]), le.Uint64(e[32:])}, Block: le.Uint64(e[40:])}
	dw11, dw12 := le.Uint32(e[44:]), le.Uint32(e[48:])
	if c.Op == OpDataset {
		c.Block, c.Blocks, c.Free = 0, le.Uint32(e[40:])&0xff+1, dw11&attrFree != 0
		return c
	}
	c.Blocks, c.FUA = dw12&blocksMask+1, dw12&flagFUA != 0
	return c
}

// Encode writes an entry.
func (c *Command) Encode(e *[CommandBytes]byte) {
	le := binary.LittleEndian
	*e = [CommandBytes]byte{0: byte(c.Op), 1: c.Fused & 3}
	if c.SGL {
		e[1] |= 1 << psdtShift
	}
	le.PutUint16(e[2:], c.ID)
	le.PutUint32(e[4:], c.NS)
	le.PutUint64(e[24:], c.Data[0])
	le.PutUint64(e[32:], c.Data[1])
	if c.Op == OpDataset {
		le.PutUint32(e[40:], (c.Blocks-1)&0xff)
		if c.Free {
			le.PutUint32(e[44:], attrFree)
		}
		return
	}
	le.PutUint64(e[40:], c.Block)
	dw12 := (c.Blocks - 1) & blocksMask
	if c.FUA {
		dw12 |= flagFUA
	}
	le.PutUint32(e[48:], dw12)
}

// DataBlock is an SGL descriptor of size bytes at a device address.
func DataBlock(addr uint64, size uint32) [2]uint64 { return [2]uint64{addr, uint64(size)} }

// Status is how a command ended: status code type and status code.
type Status uint16

const (
	StatusOK           Status = 0x000
	StatusOpcode       Status = 0x001 // Invalid Command Opcode
	StatusField        Status = 0x002 // Invalid Field in Command
	StatusTransfer     Status = 0x004 // Data Transfer Error: an address outside the lease's windows, or rights that a window has not
	StatusInternal     Status = 0x006
	StatusFusedFailed  Status = 0x009 // Command Aborted due to Failed Fused Command
	StatusFusedMissing Status = 0x00a // Command Aborted due to Missing Fused Command
	StatusNamespace    Status = 0x00b // Invalid Namespace
	StatusSGLLength    Status = 0x00f // Data SGL Length Invalid
	StatusSGLType      Status = 0x011 // SGL Descriptor Type Invalid
	StatusPRPOffset    Status = 0x013 // PRP Offset Invalid
	StatusProtected    Status = 0x020 // Namespace is Write Protected
	StatusLBA          Status = 0x080 // LBA Out of Range
	StatusCapacity     Status = 0x081 // Capacity Exceeded: the disk below is full
	StatusReserved     Status = 0x083 // Reservation Conflict
	StatusWriteFault   Status = 0x280
	StatusReadError    Status = 0x281 // Unrecovered Read Error
	StatusCompareFails Status = 0x285
)

// Text names a status in the specification's words.
func (s Status) Text() string {
	switch s {
	case StatusOK:
		return "success"
	case StatusOpcode:
		return "invalid command opcode"
	case StatusField:
		return "invalid field in command"
	case StatusTransfer:
		return "data transfer error: an address outside the lease's windows or their rights"
	case StatusInternal:
		return "internal error"
	case StatusFusedFailed:
		return "aborted, as the other of two fused commands failed"
	case StatusFusedMissing:
		return "aborted, as the other of two fused commands is missing"
	case StatusNamespace:
		return "invalid namespace"
	case StatusSGLLength:
		return "data SGL length invalid"
	case StatusSGLType:
		return "SGL descriptor type invalid"
	case StatusPRPOffset:
		return "PRP offset invalid"
	case StatusProtected:
		return "namespace is write protected"
	case StatusLBA:
		return "LBA out of range"
	case StatusCapacity:
		return "capacity exceeded: the lender's disk is full"
	case StatusReserved:
		return "reservation conflict: another borrower holds these blocks, or the key is not the registered one"
	case StatusWriteFault:
		return "write fault"
	case StatusReadError:
		return "unrecovered read error"
	case StatusCompareFails:
		return "compare failure"
	}
	return "unknown status"
}

// Completion is what an entry of a completion queue says. Its first eight bytes are zero for all commands here, so an entry is written by one store of
// the other eight, and is never seen in part.
type Completion struct {
	Head   uint16 // of the submission queue: entries before it are free
	Queue  uint16
	ID     uint16
	Status Status
	Phase  bool
}

// Word is the entry's second half.
func (c Completion) Word() uint64 {
	w := uint64(c.Head) | uint64(c.Queue)<<16 | uint64(c.ID)<<32 | uint64(c.Status)<<49
	if c.Phase {
		w |= 1 << 48
	}
	return w
}

// ParseCompletion reads an entry's second half.
func ParseCompletion(w uint64) Completion {
	return Completion{Head: uint16(w), Queue: uint16(w >> 16), ID: uint16(w >> 32), Phase: w>>48&1 == 1, Status: Status(w >> 49 & 0x7ff)}
}
