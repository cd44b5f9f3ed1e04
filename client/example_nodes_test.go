package client_test

import (
	"context"
	"os"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/node"
)

// startNodes runs two nodes, of which the first knows the other, and makes a folder the working
// directory that holds what the example names: a token, and a file to load. end undoes it all.
func startNodes() (first string, end func(), err error) {
	var ends []func()
	end = func() {
		for i := range ends {
			ends[len(ends)-1-i]()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	before, err := os.Getwd()
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "wherry")
	if err != nil {
		return "", nil, err
	}
	ends = append(ends, func() { os.RemoveAll(dir) })
	if err := os.Chdir(dir); err != nil {
		return "", nil, err
	}
	ends = append(ends, func() { os.Chdir(before) })
	token, err := cluster.NewToken("me", cluster.CapsAll)
	if err != nil {
		return "", nil, err
	}
	for name, text := range map[string]string{"token": token.Line() + "\n", "people.csv": "name,age\nAda,36\nGrace,85\nEdsger,72\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return "", nil, err
		}
	}
	var members []cluster.Member
	for _, name := range []string{"n2", "n1"} { // n1 knows n2, so that clients need not
		n, err := node.New(node.Config{Name: name, Listen: []string{"tcp://127.0.0.1:0"}, Peers: members,
			TokenFile: "token", Memory: 1 << 20, PoolMemory: 1 << 19})
		if err != nil {
			return "", nil, err
		}
		ended := make(chan struct{})
		go func() { n.Run(context.Background()); close(ended) }()
		ends = append(ends, func() { n.Close(); <-ended })
		members = append(members, cluster.Member{Name: name, Addrs: n.Addrs()})
	}
	return members[1].Addrs[0], end, nil
}
