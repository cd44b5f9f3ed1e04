package doctor

import "testing"

func TestRun(t *testing.T) {
	checks := Run(t.Context())
	seen := map[string]bool{}
	for _, c := range checks {
		if c.Name == "" || c.For == "" || seen[c.Name] {
			t.Errorf("a check without name or purpose, or twice: %+v", c)
		}
		seen[c.Name] = true
		if c.State != Good && c.State != Limited && c.State != Missing {
			t.Errorf("%s: state %q", c.Name, c.State)
		}
		if c.State == Missing && c.Do == "" {
			t.Errorf("%s is missing, and nothing is said about what to do", c.Name)
		}
		if c.Detail == "" {
			t.Errorf("%s: no detail", c.Name)
		}
	}
	if !Works(checks) {
		t.Errorf("wherry cannot work on the machine of this test: %+v", checks)
	}
	if Works([]Check{{Name: "segments", State: Missing}}) {
		t.Error("without segments wherry does not work")
	}
}
