package excache

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// placement keeps the fault loop and the thread that faults on one processor: the thread sleeps meanwhile, and the switch takes a few
// microseconds, where waking another processor takes some forty. So the loop goes where the thread is; and since the
// kernel would wake the thread on an idle processor, as the loop is busy on its own, the thread may not leave while it is answered.
// Where threads fault in turn, they are left to the kernel.
type placement struct {
	faults int
	row    int // faults of the same thread one after the other
	cpu    int // where the loop is pinned, -1: nowhere
	one    unix.CPUSet
	all    unix.CPUSet // where the thread may be
	kept   bool
	thread int // whose stat is open, 0: nobody's
	stat   int
	text   [512]byte
}

const (
	// followFaults is how often the processor is asked for, which takes about a fault's time.
	followFaults = 64
	// followRow is from how many faults in a row a thread counts as the one that faults.
	followRow = 4
)

// begin is called with the thread of process pid whose fault is answered next.
func (p *placement) begin(pid, thread int) {
	if thread != p.thread {
		p.close()
		p.row = 0
		p.thread = thread
	}
	p.row++
	if p.faults++; p.row >= followRow && (p.faults%followFaults == 0 || p.stat < 0) {
		p.follow(pid)
	}
	p.kept = p.row >= followRow && p.cpu >= 0 && p.stat >= 0 && p.all.Count() > 1 && unix.SchedSetaffinity(thread, &p.one) == nil
}

// end is called when the thread was woken.
func (p *placement) end() {
	if p.kept {
		p.kept = false
		unix.SchedSetaffinity(p.thread, &p.all) // it may be gone
	}
}

// follow moves the loop to where the thread is.
func (p *placement) follow(pid int) {
	if p.stat < 0 {
		fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/task/"+strconv.Itoa(p.thread)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return // it has ended, or is of another pid namespace
		}
		p.stat = fd
	}
	n, err := unix.Pread(p.stat, p.text[:], 0)
	if err != nil || unix.SchedGetaffinity(p.thread, &p.all) != nil {
		p.close()
		return
	}
	cpu := processor(p.text[:n])
	if cpu < 0 || cpu == p.cpu {
		return
	}
	p.one.Zero()
	p.one.Set(cpu)
	if unix.SchedSetaffinity(0, &p.one) != nil {
		cpu = -1 // it stays where it is, and is slower
	}
	p.cpu = cpu
}

func (p *placement) close() {
	if p.stat >= 0 {
		unix.Close(p.stat)
	}
	p.thread, p.stat = 0, -1
}

// processor is the field of that name in a thread's stat, -1 if it is not there. The name before the fields is in parentheses,
// and may hold any character.
func processor(stat []byte) int {
	const field = 39 - 2 // of those after the name
	at := bytes.LastIndexByte(stat, ')')
	n := 0
	for i := at + 1; at >= 0 && i < len(stat); i++ {
		if stat[i] != ' ' {
			continue
		}
		if n++; n < field {
			continue
		}
		cpu := 0
		for i++; i < len(stat) && stat[i] >= '0' && stat[i] <= '9'; i++ {
			cpu = cpu*10 + int(stat[i]-'0')
		}
		return cpu
	}
	return -1
}
