package wasmcode

// Limits on a module. They bound the work and the memory that a stranger's
// binary can ask for before it has run a single instruction. wazero's own are far higher
// (2^27 functions, 50,000 locals); these fit what compilers write for functions
// that travel, with room.
const (
	MaxCodeBytes     = 8 << 20   // of a whole binary; the C SDK's largest example is under 64 KiB
	MaxFunctionBytes = 512 << 10 // of one body: compile time grows faster than linearly with it
	MaxTypes         = 4096
	MaxParams        = 64
	MaxResults       = 16
	MaxImports       = 64 // the ABI has under 20
	MaxFunctions     = 16384
	MaxTables        = 4
	MaxTableElements = 1 << 16 // of one table: 512 KiB of host memory, copied in under 50 µs
	MaxGlobals       = 512     // compiled code keeps mutable ones like locals
	MaxExports       = 4096
	MaxElemSegments  = 1024
	MaxDataSegments  = 4096
	MaxLocals        = 4096 // of one function, parameters included: bounds a stack frame to 64 KiB
	MaxNesting       = 512  // blocks within blocks
	MaxBranchTargets = 16384
	MaxNameBytes     = 1024
	MaxPages         = 65535 // the engine reads a memory's length as 32 bits, so 4 GiB is one page too much
)

// Limits on what a function costs to compile. wazero's compiler tracks every local and mutable global through
// every basic block, and gives loops parameters for what they assign, so a few KiB of code can be made to compile for
// minutes and take gigabytes. Its passes over basic blocks take time that grows with the square of their number: 60,000 of them, which fit into one function of
// MaxFunctionBytes, take over a minute. At the limits a function takes half a second, and a module a second and a half; what compilers write
// stays far below.
const (
	MaxFunctionBlocks = 1 << 13                                   // basic blocks, branches and calls; what leaves the function counts fourfold
	MaxModuleBlocks   = 4 * MaxFunctionBlocks * MaxFunctionBlocks // sum over functions of the squares of those
	MaxFunctionWork   = 1 << 20                                   // (locals + mutable globals) × basic blocks and calls
	MaxFunctionLoops  = 1 << 14                                   // sum over loops of the locals and globals that they assign, and over blocks and branches of the values that they take along
	MaxModuleWork     = 8 * MaxFunctionWork
	MaxModuleLoops    = 8 * MaxFunctionLoops
)

// What a module may have that is Quick, in the measures of the limits above: without these bounds 4 KiB of code take 0.1 s, and 32 KiB take 0.6.
// The smaller half of the ready functions is Quick.
const (
	quickBytes   = 8 << 10
	quickSquares = 1 << 18
	quickWork    = 1 << 15
	quickTraps   = 1 << 9 // conversions to integers that trap: 4,000 of them, in 8 KiB, take 65 ms
)

// Costs, in units of one plain instruction (a fraction of a nanosecond).
const (
	costCall      = 8       // a call, which may go to an uncharged leaf
	costHostCall  = 64      // leaving to the host and coming back
	costDivide    = 8       // division, remainder, square root
	costMemory    = 16      // a load or store: usually far less, and up to a microsecond where it is the first in its page; see the engine's maxGrant
	costTable     = 4096    // a table instruction, of up to MaxTableElements
	entryCost     = 1 << 14 // a function that costs more outside of loops charges for itself
	stretchCost   = 1 << 13 // code that goes on for longer looks for fuel on the way: each load can be a page fault of a microsecond
	chunkBytes    = 256 << 10
	bytesPerUnit  = 1 << bytesPerShift
	bytesPerShift = 2 // of bulk memory work: 256 KiB take 65,536 units, about 25 µs cached
)

// BytesPerUnit is how many bytes are copied for a unit of fuel.
const BytesPerUnit = bytesPerUnit

// MailBytes is the longest message that is left in the mailbox, and MailboxBytes the
// memory a mailbox takes: its head (u64; 0 if it is empty) and the message. The head's low half is the
// length plus one, the high half is the addressee plus one, 0 for Rules.Mailed.
const (
	MailBytes    = 64
	MailboxBytes = 8 + MailBytes
)

// FastWindows is how many windows have globals.
const FastWindows = 2
