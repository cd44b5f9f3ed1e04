// Package vfiouser serves a PCI device to a virtual machine monitor over a Unix socket, by the vfio-user protocol, version 0.0. QEMU's client is vfio-user-pci, since 10.1.
//
// # Model
//
// A connection is a guest that has the device plugged in. The client tells what memory the guest has (DMA_MAP, with descriptors), which events to signal for interrupts, and
// what the guest loads and stores; the server does not send requests of its own. What a device is, Device says: this package knows the messages, the
// configuration space and MSI, and nothing about NVMe.
//
// # Interrupts
//
// MSI alone is advertised. QEMU's client aborts when a device with MSI-X is unplugged. Registers are not mapped to the client: it has no ioeventfd, so a
// store comes as a message, which wakes whoever sleeps.
//
// # What a client may say
//
// Sizes are checked before anything is read for them. A message that makes no sense ends the connection, with an error that says why; one that asks for what there is not is
// answered by an errno. Descriptors that no message claims are closed.
package vfiouser
