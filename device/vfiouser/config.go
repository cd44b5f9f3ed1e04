package vfiouser

import "encoding/binary"

const (
	configBytes = 4096
	// Vectors is how many interrupts there are by MSI.
	Vectors = 32

	msiAt = 0x50
)

// Identity is what the configuration space says of a device.
type Identity struct {
	Vendor, Device uint16
	Class          [3]byte // programming interface, subclass, class
	BarBytes       uint32  // of BAR 0: a power of two
}

// config is a configuration space: the standard head, power management, MSI and PCI Express.
type config struct {
	mem [configBytes]byte
	bar uint32
}

func newConfig(id Identity) *config {
	c := &config{bar: id.BarBytes}
	le := binary.LittleEndian
	m := &c.mem
	le.PutUint16(m[0x00:], id.Vendor)
	le.PutUint16(m[0x02:], id.Device)
	le.PutUint16(m[0x06:], 1<<4) // there are capabilities
	m[0x08] = 1
	copy(m[0x09:], id.Class[:])
	le.PutUint32(m[0x10:], 4) // BAR 0: memory, 64 bits
	le.PutUint16(m[0x2c:], id.Vendor)
	le.PutUint16(m[0x2e:], id.Device)
	m[0x34] = 0x40
	m[0x40], m[0x41] = 1, msiAt // power management
	le.PutUint16(m[0x42:], 3)
	m[msiAt], m[msiAt+1] = 5, 0x70
	le.PutUint16(m[msiAt+2:], 5<<1|1<<7) // 32 vectors, 64-bit addresses
	m[0x70] = 0x10                       // PCI Express: an endpoint of version 2
	le.PutUint16(m[0x72:], 2)
	le.PutUint32(m[0x74:], 1<<28|1<<15) // function-level reset, role-based errors
	le.PutUint32(m[0x7c:], 1|1<<4)      // a link of one lane
	le.PutUint16(m[0x82:], 1|1<<4)
	return c
}

func (c *config) read(off uint64, p []byte) { copy(p, c.mem[off:]) }

// write stores to what a driver can change, and reports whether it asks for a reset.
func (c *config) write(off uint64, p []byte) (reset bool) {
	for i, b := range p {
		at := off + uint64(i)
		mask := c.mask(at)
		if at == 0x79 && b&0x80 != 0 { // Initiate Function Level Reset, which reads as 0
			reset = true
		}
		c.mem[at] = c.mem[at]&^mask | b&mask
	}
	return reset
}

// mask has the bits of a byte that a driver can change.
func (c *config) mask(at uint64) byte {
	switch {
	case at == 0x04:
		return 0x46 // memory, bus master, parity
	case at == 0x05:
		return 0x05 // SERR, no INTx
	case at >= 0x10 && at < 0x14: // the BAR's lower half: a size is read by writing ones
		return byte(^(c.bar - 1) >> (8 * (at - 0x10)))
	case at >= 0x14 && at < 0x18:
		return 0xff
	case at == 0x3c: // the line, which is the system's to note
		return 0xff
	case at == 0x44:
		return 3 // power state
	case at == msiAt+2:
		return 0x71 // enable, and how many vectors
	case at >= msiAt+4 && at < msiAt+14: // address and data
		return 0xff
	case at == 0x78:
		return 0xff // device control
	case at == 0x79:
		return 0x7f
	case at == 0x80:
		return 0x43 // link control
	}
	return 0
}
