package elf

import "debug/elf"

const (
	riscvMachine    = elf.EM_RISCV
	riscvCompressed = 0x1 // EF_RISCV_RVC
	riscvDouble     = 0x4 // EF_RISCV_FLOAT_ABI_DOUBLE

	riscvPC32  = 57 // R_RISCV_32_PCREL
	riscvPLT32 = 59 // R_RISCV_PLT32
)

func gotRISCV(kind uint32) bool { return elf.R_RISCV(kind) == elf.R_RISCV_GOT_HI20 }

// lowPart reports whether a relocation takes its value from another one, that of the auipc at its symbol.
func lowPart(kind uint32) bool {
	k := elf.R_RISCV(kind)
	return k == elf.R_RISCV_PCREL_LO12_I || k == elf.R_RISCV_PCREL_LO12_S
}

// applyRISCV carries out a relocation of riscv64 (RISC-V ELF psABI, "Relocations").
func applyRISCV(p *placement, r *reloc, s *site) error {
	v := int64(s.value) + r.addend
	d := v - int64(s.at)
	switch k := elf.R_RISCV(r.kind); k {
	case elf.R_RISCV_NONE:
		return nil
	case elf.R_RISCV_64:
		return p.stored(r, s.put(uint64(v), 8))
	case riscvPC32, riscvPLT32:
		if !fits(d, 32) {
			return p.fail(r, "", outOfReach)
		}
		return p.stored(r, s.put(uint64(d), 4))
	case elf.R_RISCV_ADD8, elf.R_RISCV_ADD16, elf.R_RISCV_ADD32, elf.R_RISCV_ADD64:
		return p.stored(r, s.add(uint64(v), 1<<(k-elf.R_RISCV_ADD8)))
	case elf.R_RISCV_SUB8, elf.R_RISCV_SUB16, elf.R_RISCV_SUB32, elf.R_RISCV_SUB64:
		return p.stored(r, s.add(-uint64(v), 1<<(k-elf.R_RISCV_SUB8)))
	case elf.R_RISCV_PCREL_HI20, elf.R_RISCV_GOT_HI20:
		if gotRISCV(r.kind) {
			d = int64(p.got(r)) + r.addend - int64(s.at)
		}
		p.high[s.at] = d
		return p.insert(r, s, upper(d), reaches(d))
	case elf.R_RISCV_CALL, elf.R_RISCV_CALL_PLT: // an auipc and the jalr after it
		if len(s.bytes) < 8 {
			return p.fail(r, "", "leaves its section")
		}
		if err := p.insert(r, s, upper(d), reaches(d)); err != nil {
			return err
		}
		return p.insert(r, &site{bytes: s.bytes[4:], at: s.at + 4}, lowI(d), true)
	case elf.R_RISCV_PCREL_LO12_I, elf.R_RISCV_PCREL_LO12_S:
		whole, ok := p.high[s.value]
		if !ok || r.addend != 0 {
			return p.fail(r, "", "has no high part")
		}
		if k == elf.R_RISCV_PCREL_LO12_I {
			return p.insert(r, s, lowI(whole), true)
		}
		return p.insert(r, s, field{0xfe000f80, uint32(whole)>>5&0x7f<<25 | uint32(whole)&0x1f<<7}, true)
	case elf.R_RISCV_BRANCH:
		return p.insert(r, s, branch(uint32(d)), d&1 == 0 && fits(d, 13))
	case elf.R_RISCV_JAL:
		return p.insert(r, s, jal(uint32(d)), d&1 == 0 && fits(d, 21))
	case elf.R_RISCV_RVC_BRANCH:
		return p.insertShort(r, s, shortBranch(uint32(d)), d&1 == 0 && fits(d, 9))
	case elf.R_RISCV_RVC_JUMP:
		return p.insertShort(r, s, shortJump(uint32(d)), d&1 == 0 && fits(d, 12))
	}
	return p.unknown(r)
}

// add adds to the number of n bytes that is there.
func (s *site) add(v uint64, n int) bool {
	if len(s.bytes) < n {
		return false
	}
	old := uint64(0)
	for i := range n {
		old |= uint64(s.bytes[i]) << (8 * i)
	}
	return s.put(old+v, n)
}

// insert changes a field of the instruction at the site.
func (p *placement) insert(r *reloc, s *site, f field, ok bool) error {
	ins, whole := s.word()
	switch {
	case !whole:
		return p.fail(r, "", "leaves its section")
	case !ok:
		return p.fail(r, "", outOfReach+", or the target is not aligned")
	}
	return p.stored(r, s.put(uint64(ins&^f.mask|f.bits&f.mask), 4))
}

// insertShort does so for a compressed instruction.
func (p *placement) insertShort(r *reloc, s *site, f field, ok bool) error {
	switch {
	case len(s.bytes) < 2:
		return p.fail(r, "", "leaves its section")
	case !ok:
		return p.fail(r, "", outOfReach+", or the target is not aligned")
	}
	ins := uint32(s.bytes[0]) | uint32(s.bytes[1])<<8
	return p.stored(r, s.put(uint64(ins&^f.mask|f.bits&f.mask), 2))
}

// reaches reports whether an auipc and a signed low part of 12 bits make d.
func reaches(d int64) bool { return fits(d+0x800, 32) }

func upper(d int64) field { return field{0xfffff000, uint32(d + 0x800)} }
func lowI(d int64) field  { return field{0xfff00000, uint32(d) << 20} }

// branch, jal, shortBranch and shortJump scatter an offset's bits as the instruction set has them.
func branch(d uint32) field {
	return field{0xfe000f80, d>>12&1<<31 | d>>5&0x3f<<25 | d>>1&0xf<<8 | d>>11&1<<7}
}

func jal(d uint32) field {
	return field{0xfffff000, d>>20&1<<31 | d>>1&0x3ff<<21 | d>>11&1<<20 | d>>12&0xff<<12}
}

func shortBranch(d uint32) field {
	return field{0x1c7c, d>>8&1<<12 | d>>3&3<<10 | d>>6&3<<5 | d>>1&3<<3 | d>>5&1<<2}
}

func shortJump(d uint32) field {
	return field{0x1ffc, d>>11&1<<12 | d>>4&1<<11 | d>>8&3<<9 | d>>10&1<<8 | d>>6&1<<7 | d>>7&1<<6 | d>>1&7<<3 | d>>5&1<<2}
}
