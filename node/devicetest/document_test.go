package devicetest

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme/host"
)

// label writes a label into the first block of a drive.
func label(ctx context.Context, c *client.Client) error {
	d, err := c.BorrowDrive(ctx, "n1", "disk0", host.Config{Mode: device.Exclusive})
	if err != nil {
		return err // errors.Is(err, device.ErrBusy): another lease has these blocks
	}
	defer d.Close(ctx)
	block := make([]byte, 4096)
	copy(block, "a label")
	if err := d.WriteAt(ctx, block, 0); err != nil {
		return err
	}
	return d.Flush(ctx) // durable from here on
}

// TestDocument: the program of docs/devices.md is the one above, and does what it says.
func TestDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/devices.md")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("document_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "```go\n")
	text, _, _ = strings.Cut(text, "```")
	if len(text) < 200 || !strings.Contains(string(self), text) {
		t.Errorf("the document's program is another one:\n%s", text)
	}
	r := newRig(t, "shm")
	r.node("")
	if err := label(r.ctx(), r.client("borrower")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(r.file); err != nil || !bytes.HasPrefix(got, []byte("a label\x00")) {
		t.Errorf("the file begins with %q, %v", got[:8], err)
	}
}
