package control

import (
	"encoding/json"
	"testing"
)

// Answers have one length, whatever they count.
func TestTrafficHasOneLength(t *testing.T) {
	length := 0
	for _, n := range []Count{0, 1, 1 << 40, ^Count(0)} {
		b, err := json.Marshal(Traffic{Sent: []Sent{{To: 7, Frames: n, Bytes: n}}, Owed: n})
		if err != nil {
			t.Fatal(err)
		}
		var back Traffic
		if err := json.Unmarshal(b, &back); err != nil || len(back.Sent) != 1 || back.Owed != n || back.Sent[0] != (Sent{7, n, n}) {
			t.Errorf("%s became %+v (%v)", b, back, err)
		}
		if length == 0 {
			length = len(b)
		}
		if len(b) != length {
			t.Errorf("%d bytes, the others have %d", len(b), length)
		}
	}
	for _, bad := range []string{`"1"`, `"00000000000000000"`, `"000000000000000g"`, `1`} {
		var n Count
		if err := json.Unmarshal([]byte(bad), &n); err == nil {
			t.Errorf("%s is %d", bad, n)
		}
	}
}
