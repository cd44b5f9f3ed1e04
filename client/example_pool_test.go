package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// remember writes to a region of node n1's memory and reads it back.
func remember(ctx context.Context, c *client.Client) error {
	r, err := c.Pool().CreateRegion(ctx, "n1", pool.Spec{Name: "notes", Size: 256 << 10})
	if err != nil {
		return err // errors.Is(err, pool.ErrMemory): the node does not lend so much
	}
	defer r.Close() // the region stays, for whoever looks it up, until somebody destroys it
	if err := r.Put(ctx, []byte("send the function"), 4096); err != nil {
		return err
	}
	word := make([]byte, 8)
	if err := r.Get(ctx, word, 4096+9); err != nil {
		return err
	}
	fmt.Printf("%s, of %d bytes\n", word, r.Size())
	return r.Destroy(ctx)
}

// Keep bytes in another machine's memory.
func ExampleClient_Pool() {
	node, end, err := startNodes() // as "wherry node --pool-memory 512KiB" does
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Nodes: []cluster.Member{{Addrs: []string{node}}}, TokenFile: "token"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	if err := remember(ctx, c); err != nil {
		fmt.Println(err)
	}
	_, err = c.Pool().LookupRegion(ctx, "n1", "notes")
	fmt.Println(errors.Is(err, pool.ErrNoRegion))
	// Output:
	// function, of 262144 bytes
	// true
}

// TestPoolDocument: the program of docs/pool.md is the one that runs above.
func TestPoolDocument(t *testing.T) {
	document, err := os.ReadFile("../docs/pool.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_pool_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(document), "```go\n")
	block, _, _ := strings.Cut(rest, "```")
	if block == "" || !strings.Contains(string(source), block) {
		t.Errorf("the document's program is not in example_pool_test.go:\n%s", block)
	}
}
