package cluster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-fabric/wherry/fabric"
)

func TestIncarnationText(t *testing.T) {
	i := Incarnation(0xfedcba9876543210)
	b, err := json.Marshal(map[string]Incarnation{"i": i})
	if err != nil || string(b) != `{"i":"fedcba9876543210"}` {
		t.Fatalf("%s, %v", b, err)
	}
	var back map[string]Incarnation
	if err := json.Unmarshal(b, &back); err != nil || back["i"] != i {
		t.Errorf("%v, %v", back, err)
	}
}

func FuzzIncarnation(f *testing.F) {
	f.Add("00000000000000ff")
	f.Add("+0000000000000ff")
	f.Fuzz(func(t *testing.T, text string) {
		var i Incarnation
		if i.UnmarshalText([]byte(text)) == nil {
			if back, _ := i.MarshalText(); !strings.EqualFold(string(back), text) {
				t.Fatalf("%q became %q", text, back)
			}
		}
	})
}

// A table in JSON names its elements' lives as every other answer does, all digits.
func TestShardJSON(t *testing.T) {
	s := Shard{Element: "a", Incarnation: 0xfedcba9876543210, Addrs: []string{"tcp://127.0.0.1:1"}, FirstRow: 1, Rows: 2,
		Windows: []Window{{Size: 8, Writable: true, Key: fabric.Key{Size: 8}}}}
	b, err := json.Marshal(&Table{Shards: []Shard{s}, Kind: Raw, Sharding: Sharding{Kind: Block}})
	const want = `{"element":"a","incarnation":"fedcba9876543210","addrs":["tcp://127.0.0.1:1"],"first_row":1,"rows":2,"windows":[{"size":8,"writable":true}]}`
	if err != nil || !strings.Contains(string(b), want) {
		t.Fatalf("%s, %v", b, err)
	}
	var back Table
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	s.Windows[0].Key = fabric.Key{} // a secret
	if diff := cmp.Diff([]Shard{s}, back.Shards); diff != "" {
		t.Error(diff)
	}
	if err := json.Unmarshal([]byte(`{"incarnation":5}`), &back.Shards[0]); err == nil {
		t.Error("a number was taken for an incarnation")
	}
}
