#!/bin/sh
# Builds the test modules from their sources; needs clang and wasm-ld.
set -eu
cd "$(dirname "$0")"
for source in *.c; do
	clang --target=wasm32 -nostdlib -O2 -mbulk-memory -matomics -msimd128 -mtail-call -mmultivalue \
		-Wl,--no-entry -Wl,--export=wherry_main -Wl,--export-if-defined=_initialize -Wl,--strip-debug \
		-Wl,-z,stack-size=16384 -Wl,--initial-memory=131072 -o "../${source%.c}.wasm" "$source"
	chmod a-x "../${source%.c}.wasm" # the linker takes it for a program
done
