package wire

import (
	"github.com/wherry-fabric/wherry/rpc"
)

// Calls are the node's calls. Each is a value of its own, so that a program may
// have several nodes and clients.
type Calls struct {
	Hello    rpc.Method[struct{}, Welcome]
	Renew    rpc.Method[struct{}, struct{}]
	Open     rpc.Method[OpenRequest, OpenReply]
	Close    rpc.Method[uint64, struct{}]
	Sync     rpc.Method[uint64, struct{}]
	StatOpen rpc.Method[uint64, Attr]
	Read     rpc.Method[IORequest, uint32]
	Write    rpc.Method[IORequest, uint32]
	List     rpc.Method[ListRequest, ListReply]
	Stat     rpc.Method[PathRequest, Attr]
	Readlink rpc.Method[PathRequest, string]
	Remove   rpc.Method[PathRequest, struct{}]
	Mkdir    rpc.Method[MkdirRequest, Attr]
	Rename   rpc.Method[RenameRequest, struct{}]
	Set      rpc.Method[SetRequest, Attr]
	Space    rpc.Method[struct{}, Space]
}

// NewCalls defines the calls.
func NewCalls() *Calls {
	var nothing rpc.Nothing
	return &Calls{
		Hello:    rpc.Define("ioforward.hello", nothing, welcomeCodec()),
		Renew:    rpc.Define("ioforward.renew", nothing, nothing),
		Open:     rpc.Define("ioforward.open", openCodec(), openedCodec()),
		Close:    rpc.Define("ioforward.close", handleCodec(), nothing),
		Sync:     rpc.Define("ioforward.sync", handleCodec(), nothing),
		StatOpen: rpc.Define("ioforward.statopen", handleCodec(), attrCodec()),
		Read:     rpc.Define("ioforward.read", ioCodec(), countCodec()),
		Write:    rpc.Define("ioforward.write", ioCodec(), countCodec()),
		List:     rpc.Define("ioforward.list", listCodec(), listedCodec()),
		Stat:     rpc.Define("ioforward.stat", pathCodec(), attrCodec()),
		Readlink: rpc.Define("ioforward.readlink", pathCodec(), rpc.Text{}),
		Remove:   rpc.Define("ioforward.remove", pathCodec(), nothing),
		Mkdir:    rpc.Define("ioforward.mkdir", mkdirCodec(), attrCodec()),
		Rename:   rpc.Define("ioforward.rename", renameCodec(), nothing),
		Set:      rpc.Define("ioforward.set", setCodec(), attrCodec()),
		Space:    rpc.Define("ioforward.space", nothing, spaceCodec()),
	}
}
