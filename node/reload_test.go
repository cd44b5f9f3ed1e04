package node

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReloadableKeys: what Reload changes are keys of the configuration, and docs/operations.md lists exactly them.
func TestReloadableKeys(t *testing.T) {
	all := settings(&Config{})
	if len(all) < 20 {
		t.Fatalf("only %d keys were found", len(all))
	}
	for key := range reloadable {
		if _, ok := all[key]; !ok {
			t.Errorf("%s is no key of the configuration", key)
		}
	}
	doc, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`These keys change with a reload: (.*)\.\n`).FindSubmatch(doc)
	if line == nil {
		t.Fatal("the list is not there")
	}
	listed := strings.Split(strings.ReplaceAll(string(line[1]), "`", ""), ", ")
	if want := slices.Sorted(maps.Keys(reloadable)); !slices.Equal(listed, want) {
		t.Errorf("the list has %v, want %v", listed, want)
	}
}
