package elf

import "debug/elf"

func gotARM(kind uint32) bool {
	k := elf.R_AARCH64(kind)
	return k == elf.R_AARCH64_ADR_GOT_PAGE || k == elf.R_AARCH64_LD64_GOT_LO12_NC
}

// applyARM carries out a relocation of aarch64 (ELF for the Arm 64-bit Architecture, section 5.7).
func applyARM(p *placement, r *reloc, s *site) error {
	v := int64(s.value) + r.addend
	k := elf.R_AARCH64(r.kind)
	switch k {
	case elf.R_AARCH64_NONE, elf.R_AARCH64_NULL:
		return nil
	case elf.R_AARCH64_ABS64, elf.R_AARCH64_PREL64:
		if k == elf.R_AARCH64_PREL64 {
			v -= int64(s.at)
		}
		return p.stored(r, s.put(uint64(v), 8))
	case elf.R_AARCH64_PREL32:
		if v -= int64(s.at); !fits(v, 32) {
			return p.fail(r, "", outOfReach)
		}
		return p.stored(r, s.put(uint64(v), 4))
	}
	ins, ok := s.word()
	if !ok || s.at%4 != 0 {
		return p.fail(r, "", "is at no whole instruction")
	}
	if gotARM(r.kind) {
		v = int64(p.got(r)) + r.addend
	}
	field, ok := fieldARM(k, v, int64(s.at))
	switch {
	case field == nil:
		return p.unknown(r)
	case !ok:
		return p.fail(r, "", outOfReach+", or the target is not aligned")
	}
	ins = ins&^field.mask | field.bits&field.mask
	return p.stored(r, s.put(uint64(ins), 4))
}

// stored is the end of a relocation.
func (p *placement) stored(r *reloc, ok bool) error {
	if !ok {
		return p.fail(r, "", "leaves its section")
	}
	return nil
}

// field is what a relocation changes of an instruction.
type field struct{ mask, bits uint32 }

// fieldARM makes an instruction's field of a value; nil: of a kind that is not known. ok is false if the value does not fit.
func fieldARM(k elf.R_AARCH64, v, at int64) (f *field, ok bool) {
	const page = 4095
	d := v - at
	switch k {
	case elf.R_AARCH64_CALL26, elf.R_AARCH64_JUMP26:
		return &field{0x03ffffff, uint32(d >> 2)}, d&3 == 0 && fits(d, 28)
	case elf.R_AARCH64_CONDBR19, elf.R_AARCH64_LD_PREL_LO19:
		return &field{0x00ffffe0, uint32(d>>2) << 5}, d&3 == 0 && fits(d, 21)
	case elf.R_AARCH64_TSTBR14:
		return &field{0x0007ffe0, uint32(d>>2) << 5}, d&3 == 0 && fits(d, 16)
	case elf.R_AARCH64_ADR_PREL_LO21:
		return adr(d), fits(d, 21)
	case elf.R_AARCH64_ADR_PREL_PG_HI21, elf.R_AARCH64_ADR_GOT_PAGE:
		d = v&^page - at&^page
		return adr(d >> 12), fits(d, 33)
	case elf.R_AARCH64_ADD_ABS_LO12_NC:
		return low12(v, 0)
	case elf.R_AARCH64_LDST8_ABS_LO12_NC:
		return low12(v, 0)
	case elf.R_AARCH64_LDST16_ABS_LO12_NC:
		return low12(v, 1)
	case elf.R_AARCH64_LDST32_ABS_LO12_NC:
		return low12(v, 2)
	case elf.R_AARCH64_LDST64_ABS_LO12_NC, elf.R_AARCH64_LD64_GOT_LO12_NC:
		return low12(v, 3)
	case elf.R_AARCH64_LDST128_ABS_LO12_NC:
		return low12(v, 4)
	}
	return nil, false
}

// adr is the 21-bit field of adr and adrp: two low bits apart from the others.
func adr(v int64) *field {
	return &field{0x60ffffe0, uint32(v)&3<<29 | uint32(v>>2)&0x7ffff<<5}
}

// low12 is the low part of an address, counted in units of 1<<scale bytes.
func low12(v int64, scale uint) (f *field, ok bool) {
	low := uint32(v & 4095)
	return &field{0x003ffc00, low >> scale << 10}, low&(1<<scale-1) == 0
}
