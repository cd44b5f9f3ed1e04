#!/bin/sh
# Compiles runtime.c and nursery.c for the processors that workers run on, into the folder $1. go generate calls it, and a
# test, which compares: so the compiler's version is fixed.
set -eu
common="-c -Os -fPIC -ffreestanding -fno-builtin -fno-vectorize -fno-slp-vectorize -fno-stack-protector -fno-asynchronous-unwind-tables -fno-common -fno-ident -fvisibility=hidden -Wall -Wextra -Werror -Wno-visibility"
for part in runtime nursery; do
	clang-14 $common --target=x86_64-unknown-linux-gnu -mcmodel=small -o "$1/$part.x86_64.o" $part.c
	clang-14 $common --target=aarch64-unknown-linux-gnu -mcmodel=small -mno-outline-atomics -mgeneral-regs-only -o "$1/$part.aarch64.o" $part.c
	clang-14 $common --target=riscv64-unknown-linux-gnu -mcmodel=medany -march=rv64gc -mabi=lp64d -mno-relax -o "$1/$part.riscv64.o" $part.c
done
