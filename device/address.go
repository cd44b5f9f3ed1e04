package device

const (
	// offsetBits are an address's lower bits: the offset in the window.
	offsetBits = 40
	// MaxWindowBytes bounds a window.
	MaxWindowBytes = 1 << offsetBits
	// MaxWindows bounds the windows that one lease's borrower opens; they are numbered from 1.
	MaxWindows = 64
	// BufferWindow is added to the number of a queue whose commands lie at the lender: the sum is the window that they lie in.
	BufferWindow = 1 << 20
)

// Address is a device address: an offset in a window.
func Address(window uint32, offset uint64) uint64 {
	return uint64(window)<<offsetBits | offset&(MaxWindowBytes-1)
}

// Split takes an address apart.
func Split(addr uint64) (window uint32, offset uint64) {
	return uint32(addr >> offsetBits), addr & (MaxWindowBytes - 1)
}

// SubmissionDoorbell and CompletionDoorbell are where a queue pair's doorbells lie in a lease's page of registers: 4 bytes each, in the order that NVMe
// has them. Queues are numbered from 1.
func SubmissionDoorbell(queue uint16) uint64 { return uint64(queue) * 8 }

// CompletionDoorbell is described at SubmissionDoorbell.
func CompletionDoorbell(queue uint16) uint64 { return uint64(queue)*8 + 4 }
