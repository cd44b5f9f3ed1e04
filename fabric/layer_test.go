package fabric

import (
	"reflect"
	"testing"

	"github.com/wherry-fabric/wherry/internal/layer"
)

// TestLayer: what is the layers' is not the users' as well, and no exported signature lets them reach it without a Pass.
func TestLayer(t *testing.T) {
	el, ly, ep := reflect.TypeFor[*Element](), reflect.TypeFor[*Layer](), reflect.TypeFor[*Endpoint]()
	if ly.NumMethod() == 0 {
		t.Fatal("Layer has no methods")
	}
	for i := range ly.NumMethod() {
		name := ly.Method(i).Name
		for _, users := range []reflect.Type{el, ep} {
			if _, also := users.MethodByName(name); also {
				t.Errorf("%v has %s, which is Layer's", users, name)
			}
		}
	}
	for i := range el.NumMethod() {
		m := el.Method(i)
		for out := range m.Type.NumOut() {
			if m.Type.Out(out) == ly && (m.Type.NumIn() != 2 || m.Type.In(1) != reflect.TypeFor[layer.Pass]()) {
				t.Errorf("Element.%s gives a Layer to whoever asks", m.Name)
			}
		}
	}
}
