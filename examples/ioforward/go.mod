module github.com/wherry-fabric/wherry/examples/ioforward

go 1.26.0

require github.com/wherry-fabric/wherry v0.0.0

require (
	github.com/hanwen/go-fuse/v2 v2.12.1
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.49.0
)

replace github.com/wherry-fabric/wherry => ../..
