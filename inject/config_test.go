package inject_test

import (
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
)

func TestConfigValidate(t *testing.T) {
	for says, c := range map[string]inject.Config{
		"":                {},
		"Running is -1":   {Running: -1},
		"CacheBytes":      {CacheBytes: -1},
		"RunTime is -1ns": {Limits: abi.Limits{RunTime: -1}},
		"engine":          {Engines: []abi.Engine{nil}},
	} {
		if err := c.Validate(); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
	}
}
