#include "textflag.h"

// func fork(flags, entry, stack, a, b uintptr) (pid, errno uintptr)
// A system call keeps all registers but R0, so the child finds its arguments in them: the Go stack is not its own.
TEXT ·fork(SB), NOSPLIT|NOFRAME, $0-56
	MOVD flags+0(FP), R0
	MOVD entry+8(FP), R9
	MOVD stack+16(FP), R1
	MOVD a+24(FP), R10
	MOVD b+32(FP), R11
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $220, R8 // clone
	SVC
	CBZ  R0, child
	CMN  $4095, R0
	BCS  failed
	MOVD R0, pid+40(FP)
	MOVD ZR, errno+48(FP)
	RET

failed:
	NEG  R0, R0
	MOVD ZR, pid+40(FP)
	MOVD R0, errno+48(FP)
	RET

child:
	MOVD ZR, R29
	MOVD ZR, R30
	MOVD R10, R0
	MOVD R11, R1
	BL   (R9)
	MOVD $127, R0
	MOVD $94, R8 // exit_group
	SVC
	BRK
