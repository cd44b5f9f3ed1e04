package cluster

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/wherry-fabric/wherry/fabric"
)

// Incarnation is a fabric.Incarnation that JSON writes as 16 hex digits, because
// its numbers lose bits.
type Incarnation fabric.Incarnation

// MarshalText writes 16 hex digits.
func (i Incarnation) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%016x", uint64(i)), nil
}

// UnmarshalText reads them.
func (i *Incarnation) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 16, 64)
	if len(text) != 16 || err != nil {
		return fmt.Errorf("cluster: %.20q is not an incarnation, which has 16 hex digits", text)
	}
	*i = Incarnation(v)
	return nil
}

func (i Incarnation) String() string { return fabric.Incarnation(i).String() }

// plainShard is a Shard with encoding/json's own rules.
type plainShard Shard

// MarshalJSON writes the shard with its incarnation as text.
func (s Shard) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Element     string      `json:"element"`
		Incarnation Incarnation `json:"incarnation"`
		plainShard
	}{s.Element, Incarnation(s.Incarnation), plainShard(s)})
}

// UnmarshalJSON reads it.
func (s *Shard) UnmarshalJSON(b []byte) error {
	v := struct {
		Incarnation Incarnation `json:"incarnation"`
		*plainShard
	}{plainShard: (*plainShard)(s)}
	err := json.Unmarshal(b, &v)
	s.Incarnation = fabric.Incarnation(v.Incarnation)
	return err
}
