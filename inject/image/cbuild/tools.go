package cbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Tools are the paths of the two programs that a build runs.
type Tools struct {
	Clang  string
	Linker string // wasm-ld, of the same version
}

// The versions that are looked for where plain clang is missing, newest first.
// 14 is the oldest whose wasm output was tried.
const (
	newestClang = 24
	oldestClang = 14
)

// versionTimeout bounds asking a compiler for its version.
const versionTimeout = 10 * time.Second

// ErrNoCompiler says that clang or wasm-ld is missing; the message says what to install.
var ErrNoCompiler = errors.New("cbuild: no C compiler for functions")

// Install is what makes the tools available on Debian and Ubuntu.
const Install = "apt-get install clang lld"

// FindTools looks for clang and wasm-ld on PATH: first under these names, then
// with a version ("clang-18" and "wasm-ld-18").
func FindTools() (Tools, error) {
	if t, err := findVersion(""); err == nil {
		return t, nil
	}
	for v := newestClang; v >= oldestClang; v-- {
		if t, err := findVersion("-" + strconv.Itoa(v)); err == nil {
			return t, nil
		}
	}
	_, err := findVersion("")
	return Tools{}, err
}

// FindToolsVersion looks for one major version, under its versioned names or the plain ones.
func FindToolsVersion(ctx context.Context, major int) (Tools, error) {
	if t, err := findVersion("-" + strconv.Itoa(major)); err == nil {
		return t, nil
	}
	t, err := FindTools()
	if err != nil {
		return Tools{}, err
	}
	version, err := t.Version(ctx)
	if err != nil {
		return Tools{}, err
	}
	if got, _, _ := strings.Cut(version, "."); got != strconv.Itoa(major) {
		return Tools{}, fmt.Errorf("%w: version %d is wanted, %s is %s; on Debian and Ubuntu: apt-get install clang-%d lld-%d",
			ErrNoCompiler, major, t.Clang, version, major, major)
	}
	return t, nil
}

func findVersion(suffix string) (Tools, error) {
	var t Tools
	var err error
	if t.Clang, err = exec.LookPath("clang" + suffix); err != nil {
		return Tools{}, fmt.Errorf("%w: clang%s is not on PATH; on Debian and Ubuntu: %s", ErrNoCompiler, suffix, Install)
	}
	if t.Linker, err = exec.LookPath("wasm-ld" + suffix); err != nil {
		return Tools{}, fmt.Errorf("%w: clang%s is there, but its linker wasm-ld%s is not on PATH; on Debian and Ubuntu: %s",
			ErrNoCompiler, suffix, suffix, Install)
	}
	return t, nil
}

// objectLinker is lld for ELF objects: wasm-ld's neighbour, of the same package and version.
func (t Tools) objectLinker() (string, error) {
	dir, name := filepath.Split(t.Linker)
	path := filepath.Join(dir, strings.Replace(name, "wasm-ld", "ld.lld", 1))
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: %s is missing, which objects are linked with; on Debian and Ubuntu: %s", ErrNoCompiler, path, Install)
	}
	return path, nil
}

// Version is clang's version, as in "14.0.6".
func (t Tools) Version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, t.Clang, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("cbuild: %s --version: %w", t.Clang, err)
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	_, rest, ok := strings.Cut(string(line), "version ")
	if !ok {
		return "", fmt.Errorf("cbuild: %s --version says %q, which names no version", t.Clang, line)
	}
	version, _, _ := strings.Cut(rest, " ")
	// Ubuntu writes "18.1.3 (1ubuntu1)", Debian 12 "14.0.6", Debian 11 "11.0.1-2".
	version, _, _ = strings.Cut(version, "-")
	return version, nil
}
