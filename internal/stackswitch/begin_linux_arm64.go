package stackswitch

// Begin makes a frame: its first Resume calls entry(a, b), a C function that never returns, on the stack that ends at stack. The
// code gives the turn back by calling Yield's function.
func (f *Frame) Begin(entry, stack, a, b uintptr) {
	begin, _ := addresses()
	const saved = 20 * 8
	stack &^= 15
	// As resume takes them off: R19 to R30, of which the last is where to go, and F8 to F15.
	words := (*[20]uintptr)(pointer(stack - saved))
	*words = [20]uintptr{0: entry, 1: a, 2: b, 11: begin}
	f.theirs = stack - saved
}
