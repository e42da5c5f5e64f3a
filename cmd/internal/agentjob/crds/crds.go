// Package crds has the custom resource definitions of the agent-run operator. They are
// generated from the package v1alpha1 by "make generate".
package crds

import (
	"bytes"
	"embed"
	"io/fs"
	"path"
	"slices"
)

//go:embed *.yaml
var files embed.FS

// YAML returns all definitions as one stream of documents, sorted by name. The caller
// owns it.
func YAML() []byte {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		panic(err) // the pattern is right
	}
	slices.Sort(names)
	var all bytes.Buffer
	for _, name := range names {
		text, err := files.ReadFile(path.Clean(name))
		if err != nil {
			panic(err) // it is embedded
		}
		all.Write(text)
	}
	return all.Bytes()
}
