package program

import (
	"fmt"
	"os"
	"strings"
)

// ReadToken returns the token that the file holds now, without the white space
// around it. It must be one word of printable ASCII. An error names the file and
// never shows its content.
func ReadToken(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	switch {
	case token == "":
		return "", fmt.Errorf("%s is empty, want a token", file)
	case !IsToken(token):
		return "", fmt.Errorf("%s has a token with spaces or characters outside printable ASCII", file)
	}
	return token, nil
}

// IsToken reports whether the text can be sent as a token: one word of printable ASCII.
func IsToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
