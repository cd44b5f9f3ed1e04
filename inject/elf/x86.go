package elf

import (
	"debug/elf"
	"math"
)

func gotX86(kind uint32) bool {
	switch elf.R_X86_64(kind) {
	case elf.R_X86_64_GOTPCREL, elf.R_X86_64_GOTPCRELX, elf.R_X86_64_REX_GOTPCRELX:
		return true
	}
	return false
}

// applyX86 carries out a relocation of x86_64 (System V ABI, AMD64 supplement, table 4.9).
func applyX86(p *placement, r *reloc, s *site) error {
	target := s.value
	n, relative := 4, true
	switch elf.R_X86_64(r.kind) {
	case elf.R_X86_64_NONE:
		return nil
	case elf.R_X86_64_64:
		n, relative = 8, false
	case elf.R_X86_64_PC64:
		n = 8
	case elf.R_X86_64_PC32, elf.R_X86_64_PLT32: // imports are within reach, so nothing needs a PLT
	case elf.R_X86_64_GOTPCREL, elf.R_X86_64_GOTPCRELX, elf.R_X86_64_REX_GOTPCRELX:
		target = p.got(r)
	default:
		return p.unknown(r)
	}
	v := int64(target) + r.addend
	if relative {
		v -= int64(s.at)
	}
	if n == 4 && (v < math.MinInt32 || v > math.MaxInt32) {
		return p.fail(r, "", outOfReach)
	}
	if !s.put(uint64(v), n) {
		return p.fail(r, "", "leaves its section")
	}
	return nil
}
