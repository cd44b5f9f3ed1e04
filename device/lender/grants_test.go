package lender

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/fabric"
)

// TestGrantFile: what is written is what is read, and what cannot be read names the line.
func TestGrantFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grants")
	if g, err := readGrants(path); err != nil || g != nil {
		t.Fatalf("before the first grant: %v, %v", g, err)
	}
	var g grants
	for _, c := range []struct {
		name, to string
		rights   fabric.Rights
	}{{"disk0", "ann", fabric.RightRead | fabric.RightWrite}, {"disk0", "*", fabric.RightRead}, {"disk1", "bob", fabric.RightRead}, {"disk1", "bob", 0}, {"gone", "ann", fabric.RightRead}} {
		was := len(g[c.name])
		next, err := g.with(c.name, c.to, c.rights)
		if err != nil || len(g[c.name]) != was {
			t.Fatalf("%v, and the old one has %d", err, len(g[c.name]))
		}
		g = next
		if err := g.write(path); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if want := grantsHead + "disk0 * r\ndisk0 ann rw\ngone ann r\n"; err != nil || string(text) != want {
		t.Errorf("%s\nwant\n%s%v", text, want, err)
	}
	back, err := readGrants(path)
	if err != nil || len(back) != 2 || back["disk0"]["ann"] != fabric.RightRead|fabric.RightWrite || back["disk0"]["*"] != fabric.RightRead {
		t.Errorf("%v, %v", back, err)
	}
	for text, want := range map[string]string{
		"disk0 ann":            "line 1",
		"# x\n\ndisk0 ann rwx": "line 3",
		"disk0 a!b r":          "line 1",
		"../x ann r":           "line 1",
		"disk0 ann r extra":    "DEVICE PRINCIPAL RIGHTS",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readGrants(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.Chmod(path, 0o622); err != nil {
		t.Fatal(err)
	}
	if _, err := readGrants(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that anybody can write: %v", err)
	}
}

// TestGrantNotKept: a grant that cannot be written is not made.
func TestGrantNotKept(t *testing.T) {
	r := newRig(t, Limits{})
	r.l.cfg.GrantFile = filepath.Join(t.TempDir(), "no", "such", "folder")
	root := cluster.Principal{Name: "root", Caps: cluster.CapsAll}
	if err := r.l.Grant(root, &device.GrantRequest{Name: "disk0", To: "eve", Rights: "rw"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a grant without a place: %v", err)
	}
	if info, err := r.l.Stat(root, "disk0"); err != nil || info.Grants["eve"] != "" {
		t.Errorf("%v, %v", info, err)
	}
}
