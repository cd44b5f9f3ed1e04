package main

import (
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
