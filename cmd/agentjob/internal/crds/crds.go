// Package crds has the custom resource definitions of the agent-run operator. They are
// generated from the package v1alpha1 by "make generate".
package crds

import (
	"embed"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/definitions"
)

//go:embed *.yaml
var files embed.FS

// YAML returns all definitions as one stream of documents, sorted by name. The caller
// owns it.
func YAML() ([]byte, error) { return definitions.YAML(files) }
