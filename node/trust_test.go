package node

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// TestTrustFile: what is written is read, and what cannot be meant is refused with its reason.
func TestTrustFile(t *testing.T) {
	one, two := strings.Repeat("1f", 32), strings.Repeat("2e", 32)
	keys := []TrustedKey{{Name: "release", Key: one}, {Name: "ann", Key: two, Forms: []string{"elf"}, Names: []string{"chase*"}}}
	var text bytes.Buffer
	if err := WriteTrust(&text, keys); err != nil {
		t.Fatal(err)
	}
	again, err := ReadTrust(&text)
	if err != nil || len(again) != 2 || again[0].Key != one || again[1].Forms[0] != "elf" || again[1].Names[0] != "chase*" {
		t.Errorf("%+v, %v", again, err)
	}
	policy, err := TrustPolicy(again)
	if err != nil || len(policy.Keys()) != 2 || policy.Keys()[1].Forms[0] != image.ELF {
		t.Errorf("%+v, %v", policy.Keys(), err)
	}
	if _, why := policy.Judge(xrdma.Chase()).Allows(image.ELF, "chase"); why != "" {
		t.Errorf("a ready function is not trusted: %s", why)
	}
	for bad, says := range map[string]string{
		"- {name: a, key: 12}":                                         "64 hex digits",
		"- {name: a, key: " + one + ", forms: [wasm]}":                 "bitcode and elf",
		"- {name: a, key: " + one + ", until: never}":                  `no key "until"`,
		"- {name: a, key: " + one + "}\n- {name: b, key: " + one + "}": "twice",
		"name: a": "a list of entries",
		"- {name: a, key: " + one + ", names: " + strings.Repeat("x", maxTrustBytes) + "}": "more than",
	} {
		if _, err := ReadTrust(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %v, want %q", bad, err, says)
		}
	}
	if empty, err := ReadTrust(strings.NewReader("")); err != nil || len(empty) != 0 {
		t.Errorf("an empty file: %v, %v", empty, err)
	}
}

// TestTrustFileOfOthers: a node takes a trust file that only its own user or root can write.
func TestTrustFileOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trust.yaml")
	if err := os.WriteFile(path, []byte("- {name: ann, key: "+strings.Repeat("1f", 32)+"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	owner := os.Geteuid()
	if owner == 0 { // whose files every node takes
		owner = 4711
		if err := os.Chown(path, owner, -1); err != nil {
			t.Fatal(err)
		}
	}
	for _, uid := range []int{owner, FileOwner} {
		if keys, err := ReadTrustFile(path, uid); err != nil || len(keys) != 1 || keys[0].Name != "ann" {
			t.Errorf("user %d: %+v, %v", uid, keys, err)
		}
	}
	if _, err := ReadTrustFile(path, owner+1); err == nil || !strings.Contains(err.Error(), "this user's or root's") {
		t.Errorf("another user's: %v", err)
	}
	for _, mode := range []os.FileMode{0o666, 0o664, 0o602} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		for _, uid := range []int{owner, FileOwner} {
			if _, err := ReadTrustFile(path, uid); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
				t.Errorf("mode %#o, user %d: %v", mode, uid, err)
			}
		}
	}
}
