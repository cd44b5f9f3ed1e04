package worker

import (
	"bytes"
	debugelf "debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/wherry-fabric/wherry/inject/elf"
)

const (
	// nurseryAt is where a nursery's own program lies: below all that it maps in workers.
	nurseryAt = Base - 0x1000_0000
	// maxFilter is the room for a filter in nursery.c, in bytes.
	maxFilter = 512 * 8
)

// nurseryImage is nursery.c at its address.
type nurseryImage struct {
	*elf.Image
	machine debugelf.Machine
}

func nurseryOf(compiled []byte, arch string) (*nurseryImage, error) {
	machine, ok := map[string]debugelf.Machine{"x86_64": debugelf.EM_X86_64, "aarch64": debugelf.EM_AARCH64, "riscv64": debugelf.EM_RISCV}[arch]
	if !ok {
		return nil, fmt.Errorf("no worker runs on %q", arch)
	}
	o, err := elf.Parse(compiled, elf.Rules{Arch: arch, Entry: "wherry_nursery"})
	if err != nil {
		return nil, fmt.Errorf("the nursery's own code: %w", err)
	}
	img, err := o.Place(nurseryAt, func(string) (uint64, bool) { return 0, false })
	if err != nil {
		return nil, fmt.Errorf("the nursery's own code: %w", err)
	}
	return &nurseryImage{img, machine}, nil
}

// set writes a variable, which has room for so many bytes.
func (n *nurseryImage) set(name string, value []byte, room int) error {
	at, ok := n.Address(name)
	if at -= n.Base; !ok || at < n.Data || at+uint64(room) > uint64(len(n.Bytes)) {
		return fmt.Errorf("the nursery's own code has no %s", name)
	}
	if len(value) > room {
		return fmt.Errorf("the nursery's %s takes %d bytes, and has room for %d", name, len(value), room)
	}
	copy(n.Bytes[at:], value)
	return nil
}

// file is a program that the kernel can execute: a header, and the image's three parts.
func (n *nurseryImage) file() []byte {
	const at = PageBytes // in the file: the same as in memory, whatever the machine's pages are
	le := binary.LittleEndian
	var b bytes.Buffer
	put := func(v any) {
		if err := binary.Write(&b, le, v); err != nil {
			panic(err) // a buffer takes everything, and these have a fixed size
		}
	}
	header := debugelf.Header64{Type: uint16(debugelf.ET_EXEC), Machine: uint16(n.machine), Version: uint32(debugelf.EV_CURRENT), Entry: n.Entry, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 4, Shentsize: 64}
	copy(header.Ident[:], debugelf.ELFMAG)
	header.Ident[debugelf.EI_CLASS], header.Ident[debugelf.EI_DATA], header.Ident[debugelf.EI_VERSION] = byte(debugelf.ELFCLASS64), byte(debugelf.ELFDATA2LSB), byte(debugelf.EV_CURRENT)
	put(header)
	part := func(from, to, end uint64, flags debugelf.ProgFlag) {
		put(debugelf.Prog64{Type: uint32(debugelf.PT_LOAD), Flags: uint32(flags), Off: at + from, Vaddr: n.Base + from, Paddr: n.Base + from, Filesz: to - from, Memsz: end - from, Align: PageBytes})
	}
	part(0, n.Const, n.Const, debugelf.PF_R|debugelf.PF_X)
	part(n.Const, n.Data, n.Data, debugelf.PF_R)
	part(n.Data, uint64(len(n.Bytes)), n.Size, debugelf.PF_R|debugelf.PF_W)
	put(debugelf.Prog64{Type: uint32(debugelf.PT_GNU_STACK), Flags: uint32(debugelf.PF_R | debugelf.PF_W), Align: 16})
	return append(append(b.Bytes(), make([]byte, at-b.Len())...), n.Bytes...)
}
