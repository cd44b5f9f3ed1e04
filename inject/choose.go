package inject

import (
	"slices"
	"strings"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// choose finds the first engine, in their order and that of their offers, for which an image has code.
func choose(engines []abi.Engine, img *image.Image) (abi.Engine, image.Entry, error) {
	var here []string
	for _, e := range engines {
		for _, o := range e.Offers() {
			here = append(here, o.String())
			form, err := image.ParseForm(o.Form)
			if err != nil || o.Why != "" {
				continue
			}
			if entry, ok := img.EntryFor(form, o.Triple, func(f string) bool { return slices.Contains(o.Features, f) }); ok {
				return e, entry, nil
			}
		}
	}
	var has []string
	for _, e := range img.Entries() {
		has = append(has, abi.Offer{Form: e.Form.String(), Triple: e.Triple}.String())
	}
	if len(here) == 0 {
		return nil, image.Entry{}, refuse(travel.CodeRefused, "this element runs no code; %s has %s", img.Name(), strings.Join(has, ", "))
	}
	return nil, image.Entry{}, refuse(travel.CodeRefused, "this element runs %s; %s has %s", strings.Join(here, ", "), img.Name(), strings.Join(has, ", "))
}
