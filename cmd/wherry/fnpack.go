package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/inject/abi"
	objects "github.com/wherry-fabric/wherry/inject/elf"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/llvm"
)

func (a *app) fnPackCommand() *cobra.Command {
	var out, manifest string
	var targets []string
	cmd := &cobra.Command{
		Use:   "pack CODE...",
		Short: "Put what other compilers made into an image",
		Long: `Put code into an image: a wasm module, LLVM bitcode, relocatable ELF objects, one for
each processor. What a file is shows in the file; the processor of bitcode is said
by --targets, in the order of the bitcode files. The manifest lists the host calls
(imports) unless there is a wasm module, which says them itself. wherry.h shows what
code has to look like: one visible function, wherry_main.
Code that no node would run is refused, as a node would refuse it. For bitcode that takes
wherry-llvm, beside this program or on PATH; without it, that is said on standard error.`,
		Example: "  wherry fn pack f.wasm f-amd64.bc f-arm64.bc --targets x86_64,aarch64 --manifest f.json -o f.wfn",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.fnPack(cmd, args, out, manifest, targets)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "file for the image, - for standard output; the first file's name with .wfn if not given")
	f.StringVar(&manifest, "manifest", "", "the manifest; the first file's name with .json if not given")
	f.StringSliceVar(&targets, "targets", nil, "processors that the bitcode files are for, in their order")
	return cmd
}

func (a *app) fnPack(cmd *cobra.Command, files []string, out, manifest string, targets []string) error {
	stem := strings.TrimSuffix(files[0], filepath.Ext(files[0]))
	if out == "" {
		out = stem + ".wfn"
	}
	m, err := readManifest(stem, manifest)
	if err != nil {
		return err
	}
	var entries []image.Entry
	for _, file := range files {
		e, err := packEntry(file, &targets)
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	if len(targets) > 0 {
		return usagef("--targets %s: there is no bitcode file for it", strings.Join(targets, ","))
	}
	if err := checkOut(out, append(files, manifestFile(stem, manifest))...); err != nil {
		return err
	}
	img, err := image.Build(m, entries...)
	if err != nil {
		return usageError{err}
	}
	ctx, cancel := a.context(cmd)
	defer cancel()
	m = img.Manifest()
	if err := a.checkPacked(ctx, files, entries, &m); err != nil {
		return err
	}
	return a.writeImage(out, img)
}

// checkPacked refuses native code that no node would load, by what nodes load it with: files[i] has entries[i].
func (a *app) checkPacked(ctx context.Context, files []string, entries []image.Entry, m *image.Manifest) error {
	var compiler *llvm.Compiler
	for i, e := range entries {
		object := e.Code
		if e.Form == image.LLVMBitcode {
			if compiler == nil {
				compiler = llvm.New(llvm.Config{})
				defer compiler.Close()
			}
			var err error
			var refused *llvm.Error
			object, err = compiler.Check(ctx, llvm.Request{Bitcode: e.Code, Triple: e.Triple, Imports: m.Imports, Principal: "pack"})
			if errors.As(err, &refused) {
				return usagef("%s: no node would load it: %s", files[i], refused.Reason)
			}
			if err != nil {
				fmt.Fprintf(a.err, "wherry: %s is packed without a check, nodes will make it: %v\n", files[i], err)
				continue
			}
		}
		if e.Form == image.Wasm {
			continue
		}
		if err := checkObject(object, e.Triple, m); err != nil {
			return usagef("%s: %w", files[i], err)
		}
	}
	return nil
}

// checkObject says why no node would load an object with a manifest.
func checkObject(object []byte, triple string, m *image.Manifest) error {
	arch, _, _ := strings.Cut(triple, "-")
	rules := objects.Rules{Arch: arch, Entry: abi.Entry}
	for _, name := range m.Imports {
		rules.Imports = append(rules.Imports, callPrefix+name)
	}
	calls := unlisted(object, m)
	o, err := objects.Check(object, rules)
	switch {
	case err != nil && len(calls) > 0:
		return fmt.Errorf("it calls %s, which the manifest does not list; give --manifest FILE with \"imports\": [\"%s\"]", callPrefix+strings.Join(calls, ", "+callPrefix),
			strings.Join(slices.Sorted(slices.Values(slices.Concat(m.Imports, calls))), `", "`))
	case err != nil:
		return fmt.Errorf("no node would load it: %w", err)
	case m.Limits.HeapBytes != 0 && o.DataBytes() > m.Limits.HeapBytes:
		return fmt.Errorf("its static variables have %d bytes, and the manifest's limits.heap_bytes allows %d", o.DataBytes(), m.Limits.HeapBytes)
	}
	return nil
}

// callPrefix is before a host call's name in native code, as wherry.h has it.
const callPrefix = "wherry_"

// unlisted are the host calls of an object that its manifest does not list.
func unlisted(object []byte, m *image.Manifest) (calls []string) {
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return nil // objects.Check says it better
	}
	symbols, _ := f.Symbols()
	for _, s := range symbols {
		name, isCall := strings.CutPrefix(s.Name, callPrefix)
		if _, err := abi.CallNamed(name, m.ABI); err == nil && isCall && s.Section == elf.SHN_UNDEF && !slices.Contains(m.Imports, name) {
			calls = append(calls, name)
		}
	}
	return calls
}

// packEntry makes an entry of a file; bitcode takes the first of the targets.
func packEntry(file string, targets *[]string) (image.Entry, error) {
	code, err := os.ReadFile(file)
	if err != nil {
		return image.Entry{}, usageError{err}
	}
	switch {
	case bytes.HasPrefix(code, []byte("\x00asm")):
		return image.Entry{Form: image.Wasm, Code: code}, nil
	case bytes.HasPrefix(code, []byte(elf.ELFMAG)):
		triple, err := objectTriple(file, code)
		return image.Entry{Form: image.ELF, Triple: triple, Code: code}, err
	case bytes.HasPrefix(code, []byte("BC\xc0\xde")), bytes.HasPrefix(code, []byte("\xde\xc0\x17\x0b")):
		if len(*targets) == 0 {
			return image.Entry{}, usagef("%s: --targets does not say which processor this bitcode is for", file)
		}
		triple, err := cbuild.Triple((*targets)[0])
		if err != nil {
			return image.Entry{}, usageError{err}
		}
		*targets = (*targets)[1:]
		return image.Entry{Form: image.LLVMBitcode, Triple: triple, Code: code}, nil
	}
	return image.Entry{}, usagef("%s: it is no wasm module, LLVM bitcode or ELF object", file)
}

// objectTriple is the target of an ELF object.
func objectTriple(file string, code []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return "", usagef("%s: %w", file, err)
	}
	names := map[elf.Machine]string{elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64", elf.EM_RISCV: "riscv64"}
	triple, err := cbuild.Triple(names[f.Machine])
	if err != nil || f.Class != elf.ELFCLASS64 {
		return "", usagef("%s: an object for %v, %v; %s can be packed", file, f.Machine, f.Class, strings.Join(cbuild.Processors(), ", "))
	}
	return triple, nil
}
