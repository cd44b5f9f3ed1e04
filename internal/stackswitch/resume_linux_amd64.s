#include "textflag.h"

// func resume(f *Frame)
// A frame is two words: the other side's stack pointer, and ours. Go's assembly convention lets a call change every register but SP and BP.
TEXT ·resume(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ f+0(FP), DI
	LEAQ -8(SP), AX
	MOVQ BP, 0(AX)
	MOVQ AX, 8(DI)
	MOVQ 0(DI), SP
	MOVQ 0(SP), R15
	MOVQ 8(SP), R14
	MOVQ 16(SP), R13
	MOVQ 24(SP), R12
	MOVQ 32(SP), BX
	MOVQ 40(SP), BP
	LEAQ 48(SP), SP
	RET // to begin, or into whoever called yield

// begin is where the other side starts: by C's convention it calls R13(BX, R12), which does not return.
TEXT begin<>(SB), NOSPLIT|NOFRAME, $0
	MOVQ BX, DI
	MOVQ R12, SI
	CALL R13
	INT  $3

// yield is called by C's convention with the frame, and goes back to whoever called resume.
TEXT yield<>(SB), NOSPLIT|NOFRAME, $0
	LEAQ -48(SP), SP
	MOVQ R15, 0(SP)
	MOVQ R14, 8(SP)
	MOVQ R13, 16(SP)
	MOVQ R12, 24(SP)
	MOVQ BX, 32(SP)
	MOVQ BP, 40(SP)
	MOVQ SP, 0(DI)
	MOVQ 8(DI), SP
	MOVQ 0(SP), BP
	LEAQ 8(SP), SP
	RET

// func addresses() (begin, yield uintptr)
TEXT ·addresses(SB), NOSPLIT|NOFRAME, $0-16
	LEAQ begin<>(SB), AX
	MOVQ AX, begin+0(FP)
	LEAQ yield<>(SB), AX
	MOVQ AX, yield+8(FP)
	RET
