package wasm

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/wasm/internal/linear"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// pageBytes is a wasm page: every part of the layout is whole pages.
const pageBytes = linear.PageBytes

// layout says where things lie in an instance's memory, in this order and
// without gaps: heap, mailbox, payload (inbox), writable windows, scratch, read-only
// windows. What must not be written lies behind the scratch that the function has asked for, so that one comparison tells
// whether an address may be written.
type layout struct {
	heap    uint64 // bytes from 0
	mailbox uint64 // address, of a page
	inbox   uint64 // address: behind the mailbox
	windows []mapped
	stage   uint64 // address, of a huge page, in front of the read-only windows, that the staged ones share
	scratch uint64 // address
	store   uint64 // behind scratch: of the first read-only window, or the end
	end     uint64
}

// mapped is a window in the layout, at its index in the window set.
type mapped struct {
	addr     uint64
	size     uint64 // that the function may use
	span     uint64 // mapped at once: whole pages
	writable bool
	staged   bool // mapped at the layout's stage when it is asked for, in place of another
}

// slides reports whether a window is mapped in parts, or when it is asked for.
func (w *mapped) slides() bool { return w.staged || w.span < w.size }

const (
	// slotBytes is the part of a window that does not fit: large, so that a scan slides seldom, and small enough for a dozen of them.
	slotBytes = 256 << 20
	// partAhead is how much of such a window is there from the byte on that was asked for: more than the longest record.
	partAhead = 64 << 10
)

// boxBytes is what the mailbox takes, so that the payload behind it is aligned to 16 bytes.
const boxBytes = (wasmcode.MailboxBytes + 15) &^ 15

func pages(n uint64) uint64 { return (n + pageBytes - 1) &^ (pageBytes - 1) }

// MaxWindows bounds a window set; every window is a mapping of its own.
const MaxWindows = 256

// fit says how much of each window is mapped at once, and which are staged: all of it, or, of a function that asks for parts, a slot of the largest
// ones, if they do not fit besides own bytes. Of those that are wanted whole, the largest share one place.
func fit(own uint64, windows []abi.Window, parts bool) (list []mapped, stage uint64) {
	list = make([]mapped, len(windows))
	total := own
	for i, w := range windows {
		list[i] = mapped{size: w.Size, span: pages(w.Size), writable: w.Writable}
		total += min(list[i].span, 1<<40) // nothing that is added up overflows
	}
	whole := func(i int) bool { return windows[i].Whole && !windows[i].Writable }
	for parts && total+stage > linear.MaxBytes {
		most := -1
		for i := range list {
			if !list[i].staged && (whole(i) || list[i].span > slotBytes) && (most < 0 || list[i].span > list[most].span) {
				most = i
			}
		}
		if most < 0 {
			break
		}
		w := &list[most]
		total -= min(w.span, 1<<40)
		if w.staged = whole(most); w.staged {
			stage = max(stage, min(w.span, 1<<40)+linear.HugeBytes) // with what its begin is rounded up by
		} else {
			w.span = slotBytes
			total += slotBytes
		}
	}
	return list, stage
}

// plan lays out an instance of a function with these limits, which asks for parts of windows or not. limits have been
// brought below the ceilings, so their sum cannot overflow.
func plan(limits abi.Limits, windows []abi.Window, parts bool) (layout, error) {
	if len(windows) > MaxWindows {
		return layout{}, &LimitError{Limit: "windows", Wanted: uint64(len(windows)), Max: MaxWindows}
	}
	l := layout{heap: pages(limits.HeapBytes)}
	l.mailbox = l.heap
	l.inbox = l.mailbox + boxBytes // the same page: both are touched in every run
	at := l.mailbox + pages(boxBytes+limits.PayloadBytes)
	list, stage := fit(ownBytes(limits), windows, parts)
	l.windows = list
	for _, writable := range []bool{true, false} {
		if !writable {
			l.scratch = at
			at += pages(limits.ScratchBytes)
			l.store = at
			if l.stage = at; stage > 0 {
				l.stage = (at + linear.HugeBytes - 1) &^ (linear.HugeBytes - 1)
			}
			at += stage
		}
		for i, w := range windows {
			if w.Writable != writable || w.Size == 0 { // absent
				continue
			}
			if list[i].addr = at; list[i].staged {
				list[i].addr = l.stage
			} else {
				at += list[i].span
			}
			if at > linear.MaxBytes {
				return layout{}, &WindowError{i, fmt.Errorf("heap, payload, scratch and windows up to this one take %d bytes; a function's memory has at most %d, and sees larger windows "+
					"in parts if it asks for them by window_at (in C wherry_at, or wherry_chunk_slide for columns)", at, uint64(linear.MaxBytes))}
			}
		}
	}
	l.end = at
	return l, nil
}

// ownBytes is what an instance with these limits takes at most besides its windows.
func ownBytes(l abi.Limits) uint64 {
	return pages(l.HeapBytes) + pages(boxBytes+l.PayloadBytes) + pages(l.ScratchBytes)
}

// views are the windows as parts of a memory to be mapped.
func (l *layout) views(windows []abi.Window) []linear.View {
	vs := make([]linear.View, 0, len(windows))
	for i, w := range windows {
		if m := l.windows[i]; w.Size > 0 && !m.staged {
			vs = append(vs, linear.View{At: m.addr, Bytes: m.span, FD: w.FD, Offset: w.Offset, Shared: w.Writable})
		}
	}
	return vs
}

// identity tells memfds apart, however their descriptors are numbered.
type identity struct{ dev, ino uint64 }

// inspect checks that a window's descriptor is one that can be mapped for good:
// a memfd that cannot shrink and that covers the window's last page.
func inspect(w abi.Window) (identity, error) {
	if w.Size == 0 {
		return identity{}, nil // absent
	}
	seals, err := unix.FcntlInt(uintptr(w.FD), unix.F_GET_SEALS, 0)
	if err != nil {
		return identity{}, fmt.Errorf("descriptor %d is no memfd (%w); only memfds become windows", w.FD, err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return identity{}, fmt.Errorf("the memfd can shrink (seals %#x), which would end this process; seal it with F_SEAL_SHRINK", seals)
	}
	const frozen = unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_WRITE
	if w.Writable && seals&frozen != 0 {
		return identity{}, fmt.Errorf("the memfd is sealed against writing (seals %#x), so it can only be a read-only window", seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(w.FD, &st); err != nil {
		return identity{}, fmt.Errorf("fstat: %w", err)
	}
	if w.Offset < 0 || w.Offset%int64(unix.Getpagesize()) != 0 {
		return identity{}, fmt.Errorf("offset %d is no multiple of the page size", w.Offset)
	}
	if span := pages(w.Size); w.Offset > st.Size || span > uint64(st.Size-w.Offset) {
		return identity{}, fmt.Errorf("the memfd has %d bytes from the window's offset %d on, but %d are mapped; pad it to a multiple of %d",
			st.Size-w.Offset, w.Offset, span, pageBytes)
	}
	return identity{dev: uint64(st.Dev), ino: st.Ino}, nil
}
