#!/bin/sh
# Compiles the shim for the processors that it is embedded for, into the folder $1. go generate calls it, and a test, which
# compares: so the compiler's version is fixed.
set -eu
common="-std=gnu11 -O2 -shared -fPIC -nostdlib -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables -fno-ident -fvisibility=hidden -Wall -Wextra -Werror -fuse-ld=lld -Wl,--build-id=none -Wl,-s -Wl,-soname,wherry-shim.so -Wl,-z,now -Wl,-z,initfirst -Wl,-z,noexecstack -Wl,--hash-style=gnu"
clang-14 $common --target=x86_64-unknown-linux-gnu -o "$1/shim.x86_64.so" src/shim.c src/lock.c src/window.c src/fork.c src/share.c src/direct.c
clang-14 $common --target=aarch64-unknown-linux-gnu -mno-outline-atomics -o "$1/shim.aarch64.so" src/shim.c src/lock.c src/window.c src/fork.c src/share.c src/direct.c
