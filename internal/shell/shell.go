// Package shell writes text as a word of a shell's command line, for commands that messages suggest.
package shell

import "strings"

// Quote gives text between single quotes, as POSIX shells read it: nothing in it is special but the quote itself.
func Quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
