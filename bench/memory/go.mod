module github.com/wherry-fabric/wherry/bench/memory

go 1.26.0

replace github.com/wherry-fabric/wherry => ../..

require (
	github.com/hanwen/go-fuse/v2 v2.12.1
	github.com/wherry-fabric/wherry v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.49.0
)

require go.uber.org/goleak v1.3.0
