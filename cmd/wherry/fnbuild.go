package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
)

func (a *app) fnBuildCommand() *cobra.Command {
	var out, manifest string
	var lines bool
	var include, forms, targets []string
	cmd := &cobra.Command{
		Use:   "build SOURCE.c",
		Short: "Compile a C function to an image",
		Long: `Compile a function in C, with clang and lld, and put it into an image: as wasm,
which runs on every element, and with --forms also as LLVM bitcode and ELF objects,
which elements run that trust whoever signed them. The SDK's header wherry.h is
found without an installation. The manifest is JSON: the
function's name, parameters, result, limits (docs/image.md); without --manifest
it is SOURCE.json, and if there is none the function takes and returns raw bytes.
What the compiler warns of goes to standard error.`,
		Example: `  wherry fn build tally.c -o tally.wfn --manifest tally.json
  wherry fn build chase.c --forms wasm,bitcode --targets x86_64,aarch64`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := buildOptions(forms, targets)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("targets") && !slices.ContainsFunc(opts.Forms, func(f image.Form) bool { return f != image.Wasm }) {
				return usagef("--targets %s: wasm has no target, it runs on every processor: say with --forms what else to compile to, as in --forms wasm,bitcode", strings.Join(targets, ","))
			}
			opts.Lines = lines
			return a.fnBuild(cmd, args[0], out, manifest, include, opts)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "file for the image, - for standard output; SOURCE.wfn if not given")
	f.StringVar(&manifest, "manifest", "", "the manifest; SOURCE.json if not given")
	f.StringArrayVar(&include, "include", nil, "another file that the source includes; may be repeated")
	f.StringSliceVar(&forms, "forms", []string{"wasm"}, "what to compile to: wasm, bitcode, elf")
	f.BoolVarP(&lines, "lines", "g", false, "keep tables of the source's lines in bitcode and ELF: an error names the line (a few KiB more)")
	f.StringSliceVar(&targets, "targets", cbuild.Processors(), "processors that bitcode and ELF objects are made for")
	return cmd
}

func buildOptions(forms, targets []string) (cbuild.Options, error) {
	opts := cbuild.Options{Targets: targets}
	known := map[string]image.Form{"wasm": image.Wasm, "bitcode": image.LLVMBitcode, "elf": image.ELF}
	for _, name := range forms {
		form, ok := known[name]
		if !ok {
			return opts, usagef("--forms %s: it is none of wasm, bitcode, elf", name)
		}
		opts.Forms = append(opts.Forms, form)
	}
	for _, t := range targets {
		if _, err := cbuild.Triple(t); err != nil {
			return opts, usageError{err}
		}
	}
	return opts, nil
}

func (a *app) fnBuild(cmd *cobra.Command, source, out, manifest string, include []string, opts cbuild.Options) error {
	stem := strings.TrimSuffix(source, filepath.Ext(source))
	if out == "" {
		out = stem + ".wfn"
	}
	m, err := readManifest(stem, manifest)
	if err != nil {
		return err
	}
	src, err := readSource(source, include)
	if err != nil {
		return err
	}
	inputs := append([]string{source, manifestFile(stem, manifest)}, include...)
	if err := checkOut(out, inputs...); err != nil {
		return err
	}
	ctx, cancel := a.context(cmd)
	defer cancel()
	opts.Warnings = a.err
	img, err := cbuild.Build(ctx, src, m, opts)
	if err != nil {
		return err
	}
	return a.writeImage(out, img)
}

// readSource reads a C source, and what it includes.
func readSource(source string, include []string) (cbuild.Source, error) {
	code, err := os.ReadFile(source)
	src := cbuild.Source{Name: filepath.Base(source), Code: code, Includes: map[string][]byte{}}
	for _, f := range include {
		if err == nil {
			src.Includes[filepath.Base(f)], err = os.ReadFile(f)
		}
	}
	return src, err
}

// writeImage writes an image and says what it is.
func (a *app) writeImage(out string, img *image.Image) error {
	err := a.writeTo(out, func(w io.Writer) error {
		_, err := w.Write(img.Encode())
		return err
	})
	if err != nil || out == "-" {
		return err
	}
	return a.print(map[string]any{"name": img.Name(), "id": img.ID().String(), "bytes": img.Size(), "file": out}, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s, %d bytes, %s\n", out, img.Name(), img.Size(), img.ID())
	})
}

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
code has to look like: one visible function, wherry_main.`,
		Example: "  wherry fn pack f.wasm f-amd64.bc f-arm64.bc --targets x86_64,aarch64 --manifest f.json -o f.wfn",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.fnPack(args, out, manifest, targets)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "file for the image, - for standard output; the first file's name with .wfn if not given")
	f.StringVar(&manifest, "manifest", "", "the manifest; the first file's name with .json if not given")
	f.StringSliceVar(&targets, "targets", nil, "processors that the bitcode files are for, in their order")
	return cmd
}

func (a *app) fnPack(files []string, out, manifest string, targets []string) error {
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
	return a.writeImage(out, img)
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
