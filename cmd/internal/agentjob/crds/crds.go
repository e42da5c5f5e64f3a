// Package crds has the custom resource definitions of the agent-run operator. They are
// generated from the package v1alpha1 by "make generate".
package crds

import (
	"bytes"
	"embed"
	"io/fs"
	"slices"
)

//go:embed *.yaml
var files embed.FS

// YAML returns all definitions as one stream of documents, sorted by name. The caller
// owns it.
func YAML() []byte {
	var all bytes.Buffer
	names, _ := fs.Glob(files, "*.yaml") // the pattern is right
	slices.Sort(names)
	for _, name := range names {
		text, _ := files.ReadFile(name) // it is embedded
		all.Write(text)
	}
	return all.Bytes()
}
