package image

import "strings"

// madeSuffix ends the names of functions that runs have made.
const madeSuffix = ".made"

// Assemble makes an image of a wasm module that a run of this one's function has built: for the same ABI, with the same windows and
// limits, and without parameters, result schema or constants, for what it is sent and replies only its maker knows. It copies the code.
func (m *Image) Assemble(code []byte) (*Image, error) {
	name := strings.TrimSuffix(m.manifest.Name, madeSuffix)
	made := Manifest{
		Name:        name[:min(len(name), MaxNameBytes-len(madeSuffix))] + madeSuffix,
		ABI:         m.manifest.ABI,
		Description: "Made by a run of " + m.manifest.Name + ".",
		Windows:     m.manifest.Windows,
		Limits:      m.manifest.Limits,
	}
	return Build(made, Entry{Form: Wasm, Code: code})
}
