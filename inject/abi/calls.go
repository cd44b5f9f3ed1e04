package abi

import (
	"fmt"
	"slices"
	"strings"
)

// Call is one host call. calls is the only list of them: engines take their types from it and what receivers check, and
// go generate writes the declarations in sdk/c/wherry.h, the native stubs and the table in docs/abi.md.
type Call struct {
	Name   string
	Since  uint32 // the ABI version that brought it in this form
	Until  uint32 // the last version that has it in this form; 0: every one since
	Result string // its C type; "void" if there is none
	Params []Param
	Effect Effect
	// Errors are the statuses it can answer, besides ErrUnsupported while an instance is prepared, and ErrMemory and
	// ErrRights for its pointers.
	Errors []Status
	Words  string // what it does: one paragraph, with other calls and statuses as `owner`, `ErrLimit`
}

// Effect is what a call does besides answering. What waits may send too.
type Effect uint8

const (
	Pure  Effect = iota // others notice nothing of it
	Sends               // others notice it: a message, a change, a line in a log
	Waits               // it may take long, for it waits for others: for an element, or for room
)

func (e Effect) String() string { return [...]string{"pure", "sends", "waits"}[e] }

// Param is a parameter, with its C type: "uint64_t", or "const void *", which is an address in the function's memory.
type Param struct{ C, Name string }

// Wasm is the wasm type of a C type of the table: 'I' for i64, 'i' for i32.
func Wasm(c string) byte {
	if strings.Contains(c, "64_t") && !strings.HasSuffix(c, "*") {
		return 'I'
	}
	return 'i'
}

// Types are the wasm types of the parameters and of the result, a letter for each, as Wasm gives them.
func (c *Call) Types() (params, results string) {
	for _, p := range c.Params {
		params += string(Wasm(p.C))
	}
	if c.Result != "void" {
		results = string(Wasm(c.Result))
	}
	return params, results
}

// May reports whether the call can answer the status st of an invocation's host.
func (c *Call) May(st Status) bool {
	for _, p := range c.Params {
		if strings.HasSuffix(p.C, "*") && (st == ErrMemory || st == ErrRights && !strings.HasPrefix(p.C, "const")) {
			return true
		}
	}
	return st == ErrUnsupported || slices.Contains(c.Errors, st)
}

// In reports whether an ABI version has the call in this form.
func (c *Call) In(version uint32) bool {
	return c.Since <= version && (c.Until == 0 || version <= c.Until)
}

// Symbol is the call's name where all forms of all calls are told apart: its own, with the version behind it if that brought a new form of
// an older call.
func (c *Call) Symbol() string {
	for i := range calls {
		if older := &calls[i]; older.Name == c.Name && older.Since < c.Since {
			return fmt.Sprintf("%s_%d", c.Name, c.Since)
		}
	}
	return c.Name
}

// Calls lists the host calls of every ABI version, in the order of docs/abi.md. A call's place is its number for native code.
func Calls() []Call { return slices.Clone(calls[:]) }

// CallsOf lists those of one ABI version.
func CallsOf(version uint32) []Call {
	return slices.DeleteFunc(Calls(), func(c Call) bool { return !c.In(version) })
}

// CallNamed finds a host call as an ABI version has it. The error says what to do about one that it has not.
func CallNamed(name string, version uint32) (Call, error) {
	err := fmt.Errorf("there is no host call %q in any ABI version up to %d; docs/abi.md lists them", name, Version)
	for i := range calls {
		switch c := &calls[i]; {
		case c.Name != name:
		case c.In(version):
			return *c, nil
		case c.Since > version:
			err = fmt.Errorf("the host call %q came with ABI version %d, and the manifest says \"abi\": %d; build the function for version %[2]d", name, c.Since, version)
		default:
			err = fmt.Errorf("ABI version %d has no host call %q any more; build the function anew", version, name)
		}
	}
	return Call{}, err
}

// What a call that sends a message, or waits for another element, can answer besides.
var (
	sends = []Status{ErrArgument, ErrPeerLost, ErrBackpressure, ErrLimit, ErrDone, ErrDeadline, ErrCanceled}
	asks  = []Status{ErrArgument, ErrRights, ErrRevoked, ErrPeerLost, ErrBackpressure, ErrDeadline, ErrCanceled, ErrNoWindow}
)

var calls = [...]Call{
	{"self", 1, 0, "int32_t", nil, Pure, nil,
		"Index of this element in the shard table."},
	{"elements", 1, 0, "int32_t", nil, Pure, nil,
		"Number of elements in the shard table."},
	{"owner", 2, 0, "int32_t", []Param{{"uint32_t", "dataset"}, {"uint64_t", "row"}, {"uint64_t *", "local"}}, Pure, []Status{ErrArgument},
		"Index of the element that holds a row of a dataset, or a negative status. Writes the row's index there to local. Dataset 0 is the one that the function was called on; there are no others yet."},
	{"row", 2, 0, "int64_t", []Param{{"uint32_t", "dataset"}, {"int32_t", "element"}, {"uint64_t", "local"}}, Pure, []Status{ErrArgument},
		"The row of a dataset that an element holds at index local, or a negative status: the inverse of `owner`. An element's rows are in ascending order."},
	{"shard_rows", 2, 0, "int32_t", []Param{{"uint32_t", "dataset"}, {"int32_t", "element"}, {"wherry_rows_range_t *", "range"}}, Pure, []Status{ErrArgument, ErrUnsupported},
		"Writes the range of a dataset's rows that an element holds, {u64 first, u64 count}. `ErrUnsupported` unless every element holds a range: " +
			"ask `owner` and `row` then, or say \"ranges\": true in the manifest. Status."},
	{"window", 1, 0, "int32_t", []Param{{"uint32_t", "index"}, {"wherry_window_t *", "window"}}, Pure, []Status{ErrNoWindow, ErrLimit},
		"Writes where a window of this element lies, {u32 addr, u32 flags, u64 size}; flag bit 0: writable. `ErrLimit` for one that does not fit into the function's memory: " +
			"`window_at` shows a part of it. Status."},
	{"window_at", 2, 0, "int32_t", []Param{{"uint32_t", "index"}, {"uint64_t", "offset"}, {"wherry_view_t *", "view"}}, Pure, []Status{ErrArgument, ErrNoWindow},
		"Writes where the part of a window lies that has the byte at offset, {u32 addr, u32 flags, u64 first, u64 size, u64 total}: size bytes from the window's byte first on, of total ones. " +
			"A window that fits is one part. Of a larger one the part has at least 64 KiB from offset on, or all that there are, and stays until the next window_at of that window. Status."},
	{"payload", 1, 0, "int32_t", []Param{{"wherry_payload_t *", "payload"}}, Pure, nil,
		"Writes where the payload lies, {u32 addr, u32 size}, the same as the entry point's arguments. Status."},
	{"scratch", 1, 0, "void *", []Param{{"uint64_t", "size"}}, Waits, nil,
		"Address of the invocation's scratch on this element, at least size bytes, or 0 if refused: for its limit, or for want of room. " +
			"Ask for all of it before anything is sent or written elsewhere: a run that has done nothing yet waits for room, and any other gets 0 if there is none."},
	{"reply", 1, 0, "int32_t", []Param{{"const void *", "data"}, {"uint32_t", "size"}}, Sends, sends,
		"Ends the branch with these bytes as its result, or as the last part of it. Status."},
	{"reply_part", 1, 0, "int32_t", []Param{{"const void *", "data"}, {"uint32_t", "size"}}, Waits, sends,
		"Sends a part of the result ahead, of at most 59 KiB (`ErrLimit`). May wait for credit. Status."},
	{"forward", 2, 0, "int32_t", []Param{{"uint32_t", "function"}, {"int32_t", "element"}, {"const void *", "payload"}, {"uint32_t", "size"}}, Waits, sends,
		"Continues this branch on another element, with these bytes as its payload, as a run of a function: 0 is the one that runs. May wait for room. Status."},
	{"fork", 2, 0, "int32_t", []Param{{"uint32_t", "function"}, {"int32_t", "element"}, {"const void *", "payload"}, {"uint32_t", "size"}}, Waits, sends,
		"Starts another branch of this invocation on an element, which may be this one, as a run of a function: 0 is the one that runs. Waits for room, until the deadline. Status."},
	{"derive", 2, 0, "int32_t", []Param{{"const void *", "constants"}, {"uint32_t", "size"}}, Pure, []Status{ErrArgument, ErrLimit},
		"Number, for `forward` and `fork`, of a function that is this one with these constants, or a negative status. It holds for the rest of the run. " +
			"`ErrUnsupported` if the manifest names no constants; `ErrArgument` if size is not that of those it names. What was derived before can derive again."},
	{"constants", 2, 0, "int32_t", []Param{{"void *", "constants"}, {"uint32_t", "size"}}, Pure, []Status{ErrArgument},
		"Copies the constants with which this function was derived; size is that of those which the manifest names. `ErrUnsupported` if it was not derived. Status. Compilers of bitcode see through this call."},
	{"assemble", 2, 0, "int32_t", []Param{{"const void *", "code"}, {"uint32_t", "size"}}, Pure, []Status{ErrArgument, ErrLimit, ErrDone, ErrDeadline, ErrCanceled},
		"Number, for `forward` and `fork`, of a function whose code is this wasm module, of at most 64 KiB, or a negative status. It has the windows, the limits and the ABI version of this one, and no constants. " +
			"The number holds for the rest of the run. `ErrArgument` if the module breaks a rule of images; what its instructions do wrong is found where it runs first."},
	{"get", 1, 0, "int32_t", []Param{{"int32_t", "element"}, {"uint32_t", "window"}, {"uint64_t", "offset"}, {"void *", "data"}, {"uint32_t", "size"}}, Waits, asks,
		"Copies bytes from a window of any element. Waits. Status."},
	{"get_near", 2, 0, "int32_t", []Param{{"int32_t", "element"}, {"uint32_t", "window"}, {"uint64_t", "offset"}, {"void *", "data"}, {"uint32_t", "size"}}, Waits, append([]Status{ErrFar}, asks...),
		"Copies bytes from a window of an element on the same machine, whose memory is mapped here: it takes as long as a copy does, and waits at most once for each window. " +
			"Elsewhere nothing is done and the answer is `ErrFar`: to `forward` takes one message, to `get` two. Status."},
	{"put", 1, 0, "int32_t", []Param{{"int32_t", "element"}, {"uint32_t", "window"}, {"uint64_t", "offset"}, {"const void *", "data"}, {"uint32_t", "size"}}, Waits, asks,
		"Copies bytes to a window of any element. Waits. Status."},
	{"atomic", 1, 0, "int32_t", []Param{{"int32_t", "element"}, {"uint32_t", "window"}, {"uint64_t", "offset"}, {"uint32_t", "op"}, {"uint32_t", "width"},
		{"uint64_t", "operand"}, {"uint64_t", "compare"}, {"uint64_t *", "old"}}, Waits, asks,
		"An atomic operation on 4 or 8 bytes (width) of a window of any element; offset is a multiple of width. " +
			"Writes what was there before to old. Waits. Status."},
	{"log", 1, 0, "void", []Param{{"const char *", "text"}, {"uint32_t", "size"}}, Sends, nil,
		"Writes a line to the element's log: cut off at the run's limit, dropped if the pointer is bad. If the run fails, the start of the last line, " +
			"256 bytes at most, goes to the caller with its error: it is the place to say why."},
	{"now", 1, 0, "uint64_t", nil, Pure, nil,
		"Wall clock, nanoseconds since 1970."},
	{"remaining", 1, 0, "uint64_t", nil, Pure, nil,
		"Nanoseconds until the invocation's deadline."},
	{"random", 2, 0, "uint64_t", nil, Pure, nil,
		"64 bits that nobody can foresee, other ones each time."},

	// As ABI 1 had them: of the only dataset, and of the function itself.
	{"owner", 1, 1, "int32_t", []Param{{"uint64_t", "row"}, {"uint64_t *", "local"}}, Pure, []Status{ErrArgument},
		"Index of the element that holds a row, or a negative status. Writes the row's index there to local."},
	{"row", 1, 1, "int64_t", []Param{{"int32_t", "element"}, {"uint64_t", "local"}}, Pure, []Status{ErrArgument},
		"The row that an element holds at index local, or a negative status: the inverse of `owner`. An element's rows are in ascending order."},
	{"shard_rows", 1, 1, "int32_t", []Param{{"int32_t", "element"}, {"wherry_rows_range_t *", "range"}}, Pure, []Status{ErrArgument, ErrUnsupported},
		"Writes the range of rows that an element holds, {u64 first, u64 count}. `ErrUnsupported` unless every element holds a range: " +
			"ask `owner` and `row` then, or say \"ranges\": true in the manifest. Status."},
	{"forward", 1, 1, "int32_t", []Param{{"int32_t", "element"}, {"const void *", "payload"}, {"uint32_t", "size"}}, Waits, sends,
		"Continues this branch on another element, with these bytes as its payload. May wait for room. Status."},
	{"fork", 1, 1, "int32_t", []Param{{"int32_t", "element"}, {"const void *", "payload"}, {"uint32_t", "size"}}, Waits, sends,
		"Starts another branch of this invocation on an element, which may be this one. Waits for room, until the deadline. Status."},
}
