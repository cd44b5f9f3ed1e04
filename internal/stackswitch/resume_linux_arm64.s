#include "textflag.h"

// func resume(f *Frame)
// A frame is two words: the other side's stack pointer, and ours. Go's assembly convention lets a call change every register but RSP, R18, R28 (g) and
// R29. A signal handler of Go finds g in R28, which C uses as it likes: so no signal is handled while the other side runs.
TEXT ·resume(SB), NOSPLIT|NOFRAME, $0-8
	MOVD f+0(FP), R9
	SUB  $48, RSP
	STP  (R29, R30), 0(RSP)
	MOVD g, 16(RSP)
	MOVD $-1, R0
	MOVD R0, 24(RSP)
	MOVD $2, R0            // SIG_SETMASK
	ADD  $24, RSP, R1      // all
	ADD  $32, RSP, R2      // what was blocked before
	MOVD $8, R3
	MOVD $135, R8          // rt_sigprocmask
	SVC
	MOVD RSP, R0
	MOVD R0, 8(R9)
	MOVD 0(R9), R0
	MOVD R0, RSP
	LDP  0(RSP), (R19, R20)
	LDP  16(RSP), (R21, R22)
	LDP  32(RSP), (R23, R24)
	LDP  48(RSP), (R25, R26)
	LDP  64(RSP), (R27, g)
	LDP  80(RSP), (R29, R30)
	FLDPD 96(RSP), (F8, F9)
	FLDPD 112(RSP), (F10, F11)
	FLDPD 128(RSP), (F12, F13)
	FLDPD 144(RSP), (F14, F15)
	ADD  $160, RSP
	JMP  (R30)             // to begin, or into whoever called yield

// begin is where the other side starts: by C's convention it calls R19(R20, R21), which does not return.
TEXT begin<>(SB), NOSPLIT|NOFRAME, $0
	MOVD R20, R0
	MOVD R21, R1
	CALL (R19)
	BRK

// yield is called by C's convention with the frame, and goes back to whoever called resume.
TEXT yield<>(SB), NOSPLIT|NOFRAME, $0
	SUB  $160, RSP
	STP  (R19, R20), 0(RSP)
	STP  (R21, R22), 16(RSP)
	STP  (R23, R24), 32(RSP)
	STP  (R25, R26), 48(RSP)
	STP  (R27, g), 64(RSP)
	STP  (R29, R30), 80(RSP)
	FSTPD (F8, F9), 96(RSP)
	FSTPD (F10, F11), 112(RSP)
	FSTPD (F12, F13), 128(RSP)
	FSTPD (F14, F15), 144(RSP)
	MOVD RSP, R1
	MOVD R1, 0(R0)
	MOVD 8(R0), R1
	MOVD R1, RSP
	LDP  0(RSP), (R29, R30)
	MOVD 16(RSP), g
	MOVD $2, R0
	ADD  $32, RSP, R1
	MOVD ZR, R2
	MOVD $8, R3
	MOVD $135, R8
	SVC
	ADD  $48, RSP
	JMP  (R30)

// func addresses() (begin, yield uintptr)
TEXT ·addresses(SB), NOSPLIT|NOFRAME, $0-16
	MOVD $begin<>(SB), R0
	MOVD R0, begin+0(FP)
	MOVD $yield<>(SB), R0
	MOVD R0, yield+8(FP)
	RET
