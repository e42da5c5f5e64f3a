// Package definitions reads the custom resource definitions that an operator embeds.
package definitions

import (
	"bytes"
	"io/fs"
)

// YAML returns the files *.yaml of a folder as one stream of documents, sorted by name.
// The caller owns it.
func YAML(files fs.FS) ([]byte, error) {
	names, err := fs.Glob(files, "*.yaml") // in the order of their names
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		all.Write(text)
	}
	return all.Bytes(), nil
}
