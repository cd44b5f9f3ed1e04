package vm

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// archive is a cpio archive in the format newc, which Linux takes as its initramfs.
type archive struct {
	buf  bytes.Buffer
	next int
}

func (a *archive) add(name string, mode uint32, data []byte) {
	a.next++
	fmt.Fprintf(&a.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.next, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.buf.WriteString(name + "\x00")
	a.pad()
	a.buf.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}

func (a *archive) folder(name string)            { a.add(name, 0o040755, nil) }
func (a *archive) program(name string, b []byte) { a.add(name, 0o100755, b) }
func (a *archive) link(name, to string)          { a.add(name, 0o120777, []byte(to)) }

func (a *archive) end() []byte {
	a.add("TRAILER!!!", 0, nil)
	return a.buf.Bytes()
}

// initScript loads the modules and gives the second serial line to a shell. The shell reads a pipe, for on a terminal it would echo. If anything fails, or the archive did not
// arrive as a whole, init ends or does not begin, and so the guest ends (init=/init: else the kernel would go on to /bin/sh): the console says what it was.
const initScript = `#!/bin/sh
set -e
test -e /` + lastFile + `
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ip link set lo up
while read m; do insmod /mods/$m; done < /mods/order
exec 3<>/dev/ttyS1
stty raw -echo <&3
echo ` + readyMark + ` >&3
cat <&3 | sh >&3 2>&1
`

// readyMark is what the guest says first, and lastFile what comes last in the archive.
const (
	readyMark = "READY"
	lastFile  = "whole"
)

// applets are the commands of BusyBox that a guest has.
var applets = strings.Fields(`sh mount umount insmod cat ls dd echo sleep poweroff stty head tail cmp sha256sum mkdir rm cp sync seq wc cut grep sed tr test
	true false hexdump dmesg usleep uname blockdev stat find kill ip ln timeout nbd-client`)

// initramfs makes the guest's file system.
func (t *Tools) initramfs(cfg *Config) ([]byte, error) {
	var a archive
	for _, name := range []string{"bin", "dev", "proc", "sys", "mods", "mnt", "tmp", "lib", "lib64"} {
		a.folder(name)
	}
	busybox, err := os.ReadFile(t.busybox)
	if err != nil {
		return nil, err
	}
	a.program("bin/busybox", busybox)
	for _, name := range applets {
		a.link("bin/"+name, "busybox")
	}
	a.program("init", []byte(initScript))
	files, err := t.modules()
	if err != nil {
		return nil, err
	}
	for _, name := range cfg.Programs {
		if !filepath.IsAbs(name) {
			name = filepath.Join(t.dir, "qemu", name)
		}
		if err := t.install(&a, name); err != nil {
			return nil, err
		}
	}
	var order []string
	for _, name := range cfg.Modules {
		if order, err = t.load(files, name, order, &a); err != nil {
			return nil, err
		}
	}
	list := ""
	for _, name := range order {
		list += name + "\n"
	}
	a.add("mods/order", 0o100644, []byte(list))
	a.add(lastFile, 0o100644, nil)
	return a.end(), nil
}

// loader is what starts programs that have libraries.
const loader = "ld-linux-x86-64.so.2"

// machineLibraries have those libraries of this machine's programs that the tools lack; fio is linked with Ceph's.
var machineLibraries = []string{"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/ceph"}

// install adds a program to the guest's bin, and the libraries that it needs: the tools' before this machine's, which are older.
func (t *Tools) install(a *archive, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	a.program(filepath.Join("bin", filepath.Base(from)), b)
	have := map[string]bool{}
	for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
		f, err := elf.Open(todo[0])
		if err != nil {
			return fmt.Errorf("%s: %w", todo[0], err)
		}
		needs, err := f.ImportedLibraries()
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", todo[0], err)
		}
		for _, lib := range append(needs, loader) {
			if have[lib] {
				continue
			}
			have[lib] = true
			path, to := filepath.Join(t.dir, "qemu/usr/lib/x86_64-linux-gnu", lib), "lib"
			if lib == loader {
				to = "lib64"
			}
			b, err := os.ReadFile(path)
			for _, dir := range machineLibraries {
				if errors.Is(err, fs.ErrNotExist) {
					path = filepath.Join(dir, lib)
					b, err = os.ReadFile(path)
				}
			}
			if err != nil {
				return fmt.Errorf("%s needs %s, which guests do not have: %w", from, lib, err)
			}
			a.program(filepath.Join(to, lib), b)
			todo = append(todo, path)
		}
	}
	return nil
}

// modules finds the kernel's modules, by name.
func (t *Tools) modules() (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(t.tree, func(path string, _ fs.DirEntry, err error) error {
		if name, _, is := strings.Cut(filepath.Base(path), ".ko"); is {
			files[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	return files, err
}

// load adds a module and, before it, those that it depends on. One that the tree has not is part of the kernel.
func (t *Tools) load(files map[string]string, name string, order []string, a *archive) ([]string, error) {
	name = strings.ReplaceAll(name, "-", "_")
	path, there := files[name]
	if !there || slices.Contains(order, name+".ko") {
		return order, nil
	}
	b, err := os.ReadFile(path)
	if err == nil && strings.HasSuffix(path, ".xz") {
		b, err = exec.Command("xz", "-dc", path).Output()
	}
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", name, err)
	}
	needs, err := depends(b)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", name, err)
	}
	for _, other := range needs {
		if order, err = t.load(files, other, order, a); err != nil {
			return nil, err
		}
	}
	a.add("mods/"+name+".ko", 0o100644, b)
	return append(order, name+".ko"), nil
}

// depends reads what a module says of itself.
func depends(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, fmt.Errorf("no section .modinfo")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	var names []string
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, is := strings.CutPrefix(field, "depends="); is && list != "" {
			names = strings.Split(list, ",")
		}
	}
	return names, nil
}
