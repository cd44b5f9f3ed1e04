#include "textflag.h"

// func fork(flags, entry, stack, a, b uintptr) (pid, errno uintptr)
// A system call keeps all registers but A0, so the child finds its arguments in them: the Go stack is not its own.
TEXT ·fork(SB), NOSPLIT|NOFRAME, $0-56
	MOV   flags+0(FP), A0
	MOV   entry+8(FP), T0
	MOV   stack+16(FP), A1
	MOV   a+24(FP), T1
	MOV   b+32(FP), T2
	MOV   ZERO, A2
	MOV   ZERO, A3
	MOV   ZERO, A4
	MOV   $220, A7 // clone
	ECALL
	BEQZ  A0, child
	MOV   $-4096, T3
	BGTU  A0, T3, failed
	MOV   A0, pid+40(FP)
	MOV   ZERO, errno+48(FP)
	RET

failed:
	NEG   A0, A0
	MOV   ZERO, pid+40(FP)
	MOV   A0, errno+48(FP)
	RET

child:
	MOV   ZERO, S0
	MOV   T1, A0
	MOV   T2, A1
	JALR  RA, T0
	MOV   $127, A0
	MOV   $94, A7 // exit_group
	ECALL
	EBREAK
