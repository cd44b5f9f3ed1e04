#!/bin/sh
# Compiles parts.c for the three processors, as functions are compiled.
set -eu
common="-c -O2 -fPIC -ffreestanding -fno-builtin -ffp-contract=off -fsigned-char -fno-stack-protector -fno-asynchronous-unwind-tables -fno-common -fno-ident"
clang $common --target=x86_64-unknown-linux-gnu -mcmodel=small -o parts.x86_64.o parts.c
clang $common --target=aarch64-unknown-linux-gnu -mcmodel=small -mno-outline-atomics -o parts.aarch64.o parts.c
clang $common --target=riscv64-unknown-linux-gnu -mcmodel=medany -march=rv64gc -mabi=lp64d -mno-relax -o parts.riscv64.o parts.c
