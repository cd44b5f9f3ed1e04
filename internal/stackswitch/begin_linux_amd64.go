package stackswitch

// Begin makes a frame: its first Resume calls entry(a, b), a C function that never returns, on the stack that ends at stack. The
// code gives the turn back by calling Yield's function.
func (f *Frame) Begin(entry, stack, a, b uintptr) {
	begin, _ := addresses()
	stack &^= 15
	// As resume takes them off: R15, R14, R13, R12, BX, BP, and where to go.
	words := (*[7]uintptr)(pointer(stack - 56))
	*words = [7]uintptr{2: entry, 3: b, 4: a, 6: begin}
	f.theirs = stack - 56
}
