package stackswitch

// Begin makes a frame: its first Resume calls entry(a, b), a C function that never returns, on the stack that ends at stack. The
// code gives the turn back by calling Yield's function.
func (f *Frame) Begin(entry, stack, a, b uintptr) {
	begin, _ := addresses()
	const saved = 26 * 8
	stack &^= 15
	// As resume takes them off: X1, which is where to go, X8, X9, X18 to X27, F8, F9 and F18 to F27.
	words := (*[26]uintptr)(pointer(stack - saved))
	*words = [26]uintptr{0: begin, 3: entry, 4: a, 5: b}
	f.theirs = stack - saved
}
