package admin

import (
	"encoding/binary"
	"fmt"

	"github.com/wherry-fabric/wherry/device/nvme"
)

// What Identify is asked for.
const (
	askNamespace   = 0
	askController  = 1
	askNamespaces  = 2
	askDescriptors = 3
	askSetNS       = 5 // what a command set says of a namespace, and of the controller
	askSetCtrl     = 6
)

// Features that a driver can set.
const (
	featureArbitration = 0x01
	featurePower       = 0x02
	featureThreshold   = 0x04
	featureRecovery    = 0x05
	featureCache       = 0x06 // volatile write cache
	featureQueues      = 0x07
	featureCoalescing  = 0x08
	featureVector      = 0x09
	featureAtomicity   = 0x0a
	featureEvents      = 0x0b
)

// maxAnswer is the most that Get Log Page gives: it lies in two pages at most, so there is no list.
const maxAnswer = pageBytes

func (c *Controller) identify(cmd *command) nvme.Status {
	var d [pageBytes]byte
	switch cmd.dw10 & 0xff {
	case askNamespace:
		if cmd.ns != nvme.Namespace {
			return nvme.StatusNamespace
		}
		c.describeNamespace(&d)
	case askController:
		c.describe(&d)
	case askNamespaces:
		if cmd.ns >= 0xfffffffe {
			return nvme.StatusNamespace
		}
		if cmd.ns < nvme.Namespace {
			binary.LittleEndian.PutUint32(d[:], nvme.Namespace)
		}
	case askDescriptors:
		if cmd.ns != nvme.Namespace {
			return nvme.StatusNamespace
		}
		d[0], d[1] = 3, 16 // a UUID
		copy(d[4:], c.cfg.Drive.UUID[:])
	case askSetNS, askSetCtrl: // the NVM command set has no more to say
		if cmd.dw11>>24 != 0 {
			return nvme.StatusField
		}
	default:
		return nvme.StatusField
	}
	return c.give(cmd, d[:])
}

// describe is Identify Controller's answer.
func (c *Controller) describe(d *[pageBytes]byte) {
	le := binary.LittleEndian
	pad(d[4:24], c.cfg.Drive.Serial)
	pad(d[24:64], c.cfg.Drive.Model)
	pad(d[64:72], "1")
	for bytes := nvme.MaxTransferBytes / pageBytes; bytes > 1; bytes /= 2 {
		d[77]++ // MDTS, a power of two of pages
	}
	le.PutUint32(d[80:], version)
	d[111] = 1                         // an I/O controller
	le.PutUint16(d[256:], 1<<8)        // OACS: Doorbell Buffer Config
	d[258] = 3                         // ACL
	d[259] = maxEvents - 1             // AERL
	d[260] = 1<<1 | 1                  // one firmware, that stays
	le.PutUint16(d[266:], 353)         // WCTEMP and
	le.PutUint16(d[268:], 363)         // CCTEMP, in Kelvin: a driver reads them, and there is nothing that gets warm
	d[512], d[513] = 0x66, 0x44        // sizes of entries
	le.PutUint32(d[516:], 1)           // namespaces
	le.PutUint16(d[520:], 1|1<<2|1<<3) // ONCS: Compare, Dataset Management, Write Zeroes
	d[525] = 1                         // a volatile write cache
	u := c.cfg.Drive.UUID
	copy(d[768:], fmt.Sprintf("nqn.2014-08.org.nvmexpress:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]))
}

// describeNamespace is Identify Namespace's answer.
func (c *Controller) describeNamespace(d *[pageBytes]byte) {
	le := binary.LittleEndian
	for _, at := range []int{0, 8, 16} { // size, capacity, use
		le.PutUint64(d[at:], c.cfg.Drive.Blocks)
	}
	if c.cfg.Drive.ReadOnly {
		d[99] = 1
	}
	copy(d[104:], c.cfg.Drive.UUID[:])
	d[130] = 9 // its only format: blocks of 2 to the 9
}

func pad(b []byte, s string) {
	for i := copy(b, s); i < len(b); i++ {
		b[i] = ' '
	}
}

// log is Get Log Page.
func (c *Controller) log(cmd *command) nvme.Status {
	size := (uint64(cmd.dw10>>16)|uint64(cmd.dw11&0xffff)<<16)*4 + 4
	if size > maxAnswer {
		return nvme.StatusField
	}
	d := make([]byte, size)
	switch cmd.dw10 & 0xff {
	case logErrors: // none is kept
		if cmd.dw10>>15&1 == 0 {
			c.mu.Lock()
			c.quieted = [2]bool{}
			c.mu.Unlock()
		}
	case 2: // health
		var h [512]byte
		binary.LittleEndian.PutUint16(h[1:], 300) // Kelvin
		h[3], h[4] = 100, 10                      // spare, and its threshold
		if c.cfg.Drive.ReadOnly {
			h[0] = 1 << 3
		}
		copy(d, h[:])
	case 3: // firmware
		var f [512]byte
		f[0] = 1
		pad(f[8:16], "1")
		copy(d, f[:])
	default:
		return statusLog
	}
	return c.give(cmd, d)
}

// feature is Get Features and Set Features.
func (c *Controller) feature(cmd *command) (nvme.Status, uint32) {
	id := cmd.dw10 & 0xff
	switch id {
	case featureQueues:
		return nvme.StatusOK, (MaxQueues - 1) | (MaxQueues-1)<<16
	case featureArbitration, featurePower, featureThreshold, featureRecovery, featureCache, featureCoalescing, featureVector, featureAtomicity, featureEvents:
	default:
		return nvme.StatusField, 0
	}
	if cmd.op == opGet {
		return nvme.StatusOK, c.features[id]
	}
	if id == featureCache && cmd.dw11&1 == 0 {
		return statusFixed, 0
	}
	c.features[id] = cmd.dw11
	return nvme.StatusOK, 0
}
