#include "textflag.h"

// func cas(p unsafe.Pointer, oldLo, oldHi, newLo, newHi uint64) (lo, hi uint64)
// Two words that were loaded together are known to belong together only once a store to them has succeeded: so what differs is stored as it was.
TEXT ·cas(SB), NOSPLIT, $0-56
	MOVD p+0(FP), R0
	MOVD oldLo+8(FP), R1
	MOVD oldHi+16(FP), R2
	MOVD newLo+24(FP), R3
	MOVD newHi+32(FP), R4
again:
	LDAXP (R0), (R5, R6)
	CMP   R5, R1
	BNE   differs
	CMP   R6, R2
	BNE   differs
	STLXP (R3, R4), (R0), R7
	CBNZ  R7, again
	B     done
differs:
	STLXP (R5, R6), (R0), R7
	CBNZ  R7, again
done:
	MOVD R5, lo+40(FP)
	MOVD R6, hi+48(FP)
	RET
