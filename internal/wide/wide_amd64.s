#include "textflag.h"

// func cas(p unsafe.Pointer, oldLo, oldHi, newLo, newHi uint64) (lo, hi uint64)
TEXT ·cas(SB), NOSPLIT, $0-56
	MOVQ p+0(FP), R8
	MOVQ oldLo+8(FP), AX
	MOVQ oldHi+16(FP), DX
	MOVQ newLo+24(FP), BX
	MOVQ newHi+32(FP), CX
	LOCK
	CMPXCHG16B (R8)
	MOVQ AX, lo+40(FP)
	MOVQ DX, hi+48(FP)
	RET
