package program

import "bytes"

// Documents returns how many YAML documents have a line that is no comment.
func Documents(data []byte) (n int) {
	empty := true
	for line := range bytes.Lines(data) {
		text, marked := bytes.CutPrefix(line, []byte("---"))
		empty = empty || marked
		if text = bytes.TrimSpace(text); empty && len(text) > 0 && text[0] != '#' {
			empty = false
			n++
		}
	}
	return n
}
