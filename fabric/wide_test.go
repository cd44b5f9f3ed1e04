package fabric

import (
	"errors"
	"strings"
	"testing"
)

// TestWideUnknown: a peer whose HELLO lacks the feature is not sent the frame, which it would end the connection for.
func TestWideUnknown(t *testing.T) {
	ep := &Endpoint{peer: &peerInfo{hello: &hello{name: "old", features: featureOne}}}
	_, err := ep.Served(Key{Size: 64, Rights: RightsAll}).CompareSwapWide(t.Context(), 0, Wide{}, Wide{1})
	if !errors.Is(err, ErrNoWide) || !strings.Contains(err.Error(), "old") {
		t.Error(err)
	}
}
