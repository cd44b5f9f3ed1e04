#include "textflag.h"

// func fork(flags, entry, stack, a, b uintptr) (pid, errno uintptr)
// A system call keeps all registers but AX, CX and R11, so the child finds its arguments in them: the Go stack is not its own.
TEXT ·fork(SB), NOSPLIT|NOFRAME, $0-56
	MOVQ flags+0(FP), DI
	MOVQ entry+8(FP), R12
	MOVQ stack+16(FP), SI
	MOVQ a+24(FP), R13
	MOVQ b+32(FP), BX
	XORQ DX, DX
	XORQ R10, R10
	XORQ R8, R8
	MOVQ $56, AX // clone
	SYSCALL
	TESTQ AX, AX
	JEQ  child
	CMPQ AX, $0xfffffffffffff001
	JCC  failed
	MOVQ AX, pid+40(FP)
	MOVQ $0, errno+48(FP)
	RET

failed:
	NEGQ AX
	MOVQ $0, pid+40(FP)
	MOVQ AX, errno+48(FP)
	RET

child:
	XORQ BP, BP
	MOVQ R13, DI
	MOVQ BX, SI
	CALL R12
	MOVQ $127, DI
	MOVQ $231, AX // exit_group
	SYSCALL
	INT  $3
