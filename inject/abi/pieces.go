package abi

// PieceBytes is the most that an engine has its Host get or put at once: a tenth of a millisecond, or a whole one where each page of both sides is touched
// for the first time. Nothing interrupts such a copy, so whatever waits for this processor waits for the piece.
const PieceBytes = 1 << 20

// LongCopy is how many bytes a host call copies at most on the goroutine that drives the fabric: before it copies more, an engine asks its Host (Tick), so that
// another one drives.
const LongCopy = 64 << 10

// Pieces has a host call that moves mem, from or to offset of a window, carried out in pieces; pay is asked before each. The last piece comes first: if all of it
// lies in the window the others do too, so a call that is refused has moved nothing.
func Pieces(offset uint64, mem []byte, pay func(n int) error, move func(offset uint64, piece []byte) Status) (Status, error) {
	if n := uint64(len(mem)); offset+n < offset { // which the host refuses
		return move(offset, mem), nil
	}
	for end := len(mem); ; {
		from := max(end-PieceBytes, 0)
		if err := pay(end - from); err != nil {
			return OK, err
		}
		if st := move(offset+uint64(from), mem[from:end:end]); st != OK || from == 0 {
			return st, nil
		}
		end = from
	}
}
