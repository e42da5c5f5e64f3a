// Package crds has the custom resource definitions of the application operator. They are
// generated from the package v1alpha1 by "make generate".
package crds

import (
	"bytes"
	"embed"
	"io/fs"
)

//go:embed *.yaml
var files embed.FS

// YAML returns all definitions as one stream of documents, sorted by name. The caller
// owns it.
func YAML() ([]byte, error) {
	names, err := fs.Glob(files, "*.yaml") // in the order of their names
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all.Write(text)
	}
	return all.Bytes(), nil
}
