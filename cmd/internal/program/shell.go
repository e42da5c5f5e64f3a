package program

import (
	"regexp"
	"strings"
	"unicode"
)

// plainWord is what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]*$`)

// CommandLine returns a line that a person may paste into a shell to run a command of one of the
// programs with these arguments, wherever they come from: each is one word that is no flag, and what
// cannot be printed is replaced.
func CommandLine(command string, arguments ...string) string {
	var line strings.Builder
	line.WriteString(command)
	for _, a := range arguments {
		if strings.HasPrefix(a, "-") {
			line.WriteString(" --") // what follows is no flag
			break
		}
	}
	for _, a := range arguments {
		a = strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return unicode.ReplacementChar
			}
			return r
		}, a)
		if !plainWord.MatchString(a) {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		line.WriteString(" " + a)
	}
	return line.String()
}
