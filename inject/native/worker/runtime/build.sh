#!/bin/sh
# Compiles runtime.c for the processors that workers run on. go generate calls it.
set -eu
common="-c -Os -fPIC -ffreestanding -fno-builtin -fno-vectorize -fno-slp-vectorize -fno-stack-protector -fno-asynchronous-unwind-tables -fno-common -fno-ident -fvisibility=hidden -Wall -Wextra -Werror -Wno-visibility"
clang $common --target=x86_64-unknown-linux-gnu -mcmodel=small -o runtime.x86_64.o runtime.c
clang $common --target=aarch64-unknown-linux-gnu -mcmodel=small -mno-outline-atomics -mgeneral-regs-only -o runtime.aarch64.o runtime.c
clang $common --target=riscv64-unknown-linux-gnu -mcmodel=medany -march=rv64gc -mabi=lp64d -mno-relax -o runtime.riscv64.o runtime.c
