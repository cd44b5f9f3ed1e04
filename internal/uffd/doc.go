// Package uffd wraps the kernel's userfaultfd: page faults of one process, answered by another.
//
// # Model
//
// A descriptor belongs to the address space of the process that opened it (Open), also after it was handed to another
// process (Adopt). Addresses are that process's. Ranges are registered with modes: Missing (no page in the file), Minor (a page
// in the file, none in the page table) and Protected (a write to a protected page). A fault is an Event; its thread waits until
// Copy, Zero, Continue, Protect(off), Poison or Wake covers its page.
//
// # Errors
//
// Errors of the calls that answer faults are bare unix.Errno values, so that no error is allocated for a fault. Copy, Zero and
// Continue return how many bytes are in place as well, and go on by themselves after a partial result:
//
//   - EEXIST: the page at addr+n is there already. Waiting threads were not woken for it; Wake does that.
//   - EAGAIN: the mappings of the process are just changing (only with the events for fork, remap and remove). No event tells
//     when that ends, so the caller tries again after a while.
//   - ENOENT: the range is not mapped or not registered any more; ESRCH: the process is gone. There is nothing to answer.
//   - EEXIST from Poison also where a protected page was taken away: its mark stays until Protect(off).
//   - ENOMEM, EINVAL, EFAULT: as in ioctl_userfaultfd(2).
//
// # Kernels
//
// Probe says whether this process may watch faults that happen inside system calls too. Without those a read(2) into watched memory
// fails with EFAULT, which no program expects.
package uffd
