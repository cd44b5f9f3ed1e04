package cluster

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const secretA, secretB = "000102030405060708090a0b0c0d0e0f", "ff0102030405060708090a0b0c0d0e0f"

func TestTokens(t *testing.T) {
	ts, err := ReadTokens(strings.NewReader("# who may do what\n\nbob:read,inject:" + secretA + " # reader\n a : none : " + secretB + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := hex.DecodeString(secretA)
	p, ok := ts.Authenticate(secret)
	if !ok || p != (Principal{"bob", CapRead | CapInject}) || ts.Len() != 2 {
		t.Error(p, ok)
	}
	for _, bad := range [][]byte{nil, secret[:15], append(secret, 0)} {
		if p, ok := ts.Authenticate(bad); ok {
			t.Error(p)
		}
	}
	tok, ok := ts.Lookup("bob")
	if !ok || tok.Line() != "bob:inject,read:"+secretA {
		t.Error(tok, ok)
	}
	if _, ok := ts.Lookup("eve"); ok {
		t.Error("eve")
	}
	for _, out := range []string{fmt.Sprint(tok), fmt.Sprintf("%+v %#v", []Token{tok}, tok)} {
		if strings.Contains(out, "0, 1, 2") || strings.Contains(out, secretA) || strings.Contains(out, "0 1 2") {
			t.Errorf("the secret shows: %s", out)
		}
	}
	fresh, err := NewToken("n", CapsAll)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseToken(fresh.Line())
	if diff := cmp.Diff(fresh, back); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestTokenErrors(t *testing.T) {
	tests := []struct{ text, want string }{
		{"bob:read", "line 1: cluster: bad token: a line with 2 parts, want name:caps:hexsecret"},
		{"\nb ob:read:" + secretA, "line 2: "},
		{"bob:raed:" + secretA, `did you mean "read"`},
		{"bob:read,read:" + secretA, "stands twice"},
		{"bob::" + secretA, `there is no capability ""`},
		{"bob:read:xyz", "its secret is not hex digits"},
		{"bob:read:0011", "a secret of 2 bytes, want 16 to 64"},
		{"bob:read:" + strings.Repeat("00", 65), "a secret of 65 bytes"},
		{"bob:read:" + secretA + "\nbob:read:" + secretB, "bob stands twice"},
		{"bob:read:" + secretA + "\nann:read:" + secretA, "ann and bob have the same secret"},
		{strings.Repeat("x", maxLineBytes+1), "too long"},
	}
	for _, tt := range tests {
		_, err := ReadTokens(strings.NewReader(tt.text))
		if !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.50q: %v, want …%s…", tt.text, err, tt.want)
		}
		if err != nil && (strings.Contains(err.Error(), secretA) || strings.Contains(err.Error(), "xyz")) {
			t.Errorf("a message shows a secret: %v", err)
		}
	}
	var many strings.Builder
	for i := range MaxTokens + 1 {
		fmt.Fprintf(&many, "n%d:none:%032x\n", i, i)
	}
	if _, err := ReadTokens(strings.NewReader(many.String())); !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), "more than 4096") {
		t.Error(err)
	}
}

func TestLoadTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("bob:read:"+secretA+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ts, err := LoadTokens(path); err != nil || ts.Len() != 1 {
		t.Error(err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o700, 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadTokens(path); !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), "chmod 600 "+path) {
			t.Errorf("%o: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadTokens(path); err != nil {
		t.Error(err)
	}
	if _, err := LoadTokens(filepath.Dir(path)); !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
	if _, err := LoadTokens(path + "x"); !errors.Is(err, os.ErrNotExist) || !errors.Is(err, ErrToken) {
		t.Error(err)
	}
	if os.Geteuid() == 0 { // only root can give a file away
		if err := os.Chown(path, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadTokens(path); !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), "does not belong") {
			t.Error(err)
		}
	}
}

func TestCaps(t *testing.T) {
	if !CapAdmin.Has(CapInject|CapRead|CapWrite|CapAdmin) || CapAdmin.Has(CapMember) || CapRead.Has(CapRead|CapWrite) {
		t.Error("Has")
	}
	if got := (CapsAll | 0x80).String(); got != "inject,read,write,admin,member,device,0x80" {
		t.Error(got)
	}
}

func TestPeers(t *testing.T) {
	want := []Member{{"a", []string{"tcp://10.0.0.1:7000", "shm:///run/a.sock"}}, {"b", []string{"tcp://[::1]:7001"}}}
	got, err := ParsePeers("b=tcp://[::1]:7001, a=tcp://10.0.0.1:7000,a=shm:///run/a.sock")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestPeersErrors(t *testing.T) {
	tests := []struct{ list, want string }{
		{"", `entry 1: "" is not name=address`},
		{"a=tcp://h:1,", `entry 2: "" is not name=address`},
		{"a", `"a" is not name=address`},
		{"a b=tcp://h:1", `the name "a b" must be letters`},
		{"../x=tcp://h:1", "must be letters"},
		{"a/../x=tcp://h:1", `a part ".."`},
		{"a=h:1", `"h:1" is not scheme://`},
		{"a=TCP://h:1", "not lower-case"},
		{"a=ucx://x\ty", "control character"},
		{"a=tcp://h:1,b=tcp://h:1", "is given to a already"},
		{"a=tcp://" + strings.Repeat("h", 300) + ":1", "at most 300"},
		{strings.Repeat("n", 129) + "=tcp://h:1", "at most 128"},
	}
	for _, tt := range tests {
		if _, err := ParsePeers(tt.list); !errors.Is(err, ErrPeers) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40q: %v, want …%s…", tt.list, err, tt.want)
		}
	}
	var list []string
	for i := range MaxMembers + 1 {
		list = append(list, fmt.Sprintf("n%d=tcp://h:%d", i, i+1))
	}
	if _, err := ParsePeers(strings.Join(list, ",")); !errors.Is(err, ErrPeers) || !strings.Contains(err.Error(), "more than 1024") {
		t.Error(err)
	}
}

func FuzzReadTokens(f *testing.F) {
	f.Add("bob:read,inject:" + secretA + " # reader\n")
	f.Fuzz(func(t *testing.T, text string) {
		ts, err := ReadTokens(strings.NewReader(text))
		if err != nil {
			return
		}
		var lines strings.Builder
		for _, tok := range ts.list {
			lines.WriteString(tok.Line() + "\n")
		}
		again, err := ReadTokens(strings.NewReader(lines.String()))
		if err != nil {
			t.Fatalf("%q: %v", lines.String(), err)
		}
		if diff := cmp.Diff(ts.list, again.list); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzPeers(f *testing.F) {
	f.Add("a=tcp://10.0.0.1:7000,b=shm:///run/b")
	f.Fuzz(func(t *testing.T, text string) {
		if members, err := ParsePeers(text); err == nil {
			for _, m := range members {
				if err := m.Validate(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
