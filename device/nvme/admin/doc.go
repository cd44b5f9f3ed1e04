// Package admin is an NVMe controller as its driver sees it, without the I/O: registers, the admin queue and its commands. It stands beside the borrower; I/O queues are
// made elsewhere (Queues), at the lender of the drive.
//
// # Model
//
// Whoever has the driver's loads and stores calls ReadRegister and WriteRegister. They do not wait: a store that asks for work is remembered, and Step does the work, one
// thing at each call, on a goroutine of the caller's. There are no clocks, goroutines or sockets here, so tests give a store, a Step and look.
//
// Registers and commands are those of the NVM Express base specification 1.4: one namespace, contiguous queues, memory pages of 4 KiB, PRPs, Doorbell Buffer Config.
// A completion queue serves one submission queue, of the same number.
//
// # What a driver may say
//
// Each command is copied once, and the copy is checked. A doorbell out of range is an asynchronous event, as the specification has it, and moves nothing. A controller that
// cannot be enabled as the driver asks, or whose admin queue lies in no memory, says so by CSTS.CFS.
package admin
