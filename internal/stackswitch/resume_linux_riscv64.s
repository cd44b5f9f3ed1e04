#include "textflag.h"

// func resume(f *Frame)
// A frame is two words: the other side's stack pointer, and ours. Go's assembly convention lets a call change every register but X2, X3, X4 and X27 (g).
// A signal handler of Go finds g in X27, which C uses as it likes: so no signal is handled while the other side runs.
TEXT ·resume(SB), NOSPLIT|NOFRAME, $0-8
	MOV  f+0(FP), X9
	ADD  $-32, X2
	MOV  X1, 0(X2)
	MOV  g, 8(X2)
	MOV  $-1, X10
	MOV  X10, 16(X2)
	MOV  $2, X10           // SIG_SETMASK
	ADD  $16, X2, X11      // all
	ADD  $24, X2, X12      // what was blocked before
	MOV  $8, X13
	MOV  $135, X17         // rt_sigprocmask
	ECALL
	MOV  X2, 8(X9)
	MOV  0(X9), X2
	MOV  0(X2), X1
	MOV  8(X2), X8
	MOV  16(X2), X9
	MOV  24(X2), X18
	MOV  32(X2), X19
	MOV  40(X2), X20
	MOV  48(X2), X21
	MOV  56(X2), X22
	MOV  64(X2), X23
	MOV  72(X2), X24
	MOV  80(X2), X25
	MOV  88(X2), X26
	MOV  96(X2), g
	MOVD 104(X2), F8
	MOVD 112(X2), F9
	MOVD 120(X2), F18
	MOVD 128(X2), F19
	MOVD 136(X2), F20
	MOVD 144(X2), F21
	MOVD 152(X2), F22
	MOVD 160(X2), F23
	MOVD 168(X2), F24
	MOVD 176(X2), F25
	MOVD 184(X2), F26
	MOVD 192(X2), F27
	ADD  $208, X2
	JALR ZERO, X1          // to begin, or into whoever called yield

// begin is where the other side starts: by C's convention it calls X18(X19, X20), which does not return.
TEXT begin<>(SB), NOSPLIT|NOFRAME, $0
	MOV  X19, X10
	MOV  X20, X11
	JALR X1, X18
	EBREAK

// yield is called by C's convention with the frame, and goes back to whoever called resume.
TEXT yield<>(SB), NOSPLIT|NOFRAME, $0
	ADD  $-208, X2
	MOV  X1, 0(X2)
	MOV  X8, 8(X2)
	MOV  X9, 16(X2)
	MOV  X18, 24(X2)
	MOV  X19, 32(X2)
	MOV  X20, 40(X2)
	MOV  X21, 48(X2)
	MOV  X22, 56(X2)
	MOV  X23, 64(X2)
	MOV  X24, 72(X2)
	MOV  X25, 80(X2)
	MOV  X26, 88(X2)
	MOV  g, 96(X2)
	MOVD F8, 104(X2)
	MOVD F9, 112(X2)
	MOVD F18, 120(X2)
	MOVD F19, 128(X2)
	MOVD F20, 136(X2)
	MOVD F21, 144(X2)
	MOVD F22, 152(X2)
	MOVD F23, 160(X2)
	MOVD F24, 168(X2)
	MOVD F25, 176(X2)
	MOVD F26, 184(X2)
	MOVD F27, 192(X2)
	MOV  X2, 0(X10)
	MOV  8(X10), X2
	MOV  0(X2), X1
	MOV  8(X2), g
	MOV  $2, X10
	ADD  $24, X2, X11
	MOV  ZERO, X12
	MOV  $8, X13
	MOV  $135, X17
	ECALL
	ADD  $32, X2
	JALR ZERO, X1

// func addresses() (begin, yield uintptr)
TEXT ·addresses(SB), NOSPLIT|NOFRAME, $0-16
	MOV  $begin<>(SB), X10
	MOV  X10, begin+0(FP)
	MOV  $yield<>(SB), X10
	MOV  X10, yield+8(FP)
	RET
