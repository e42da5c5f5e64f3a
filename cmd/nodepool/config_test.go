package main

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the files under config")

// files are those under config, but the samples: a definition each, and the rights.
func files(t *testing.T) map[string]string {
	t.Helper()
	code, stdout, _ := execute("manifests", "--cluster-name", "my-cluster", "--region", "eu-central-1")
	require.Zero(t, code)
	all := map[string]string{}
	for text := range strings.SplitSeq(stdout, "---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &o))
		switch o.Kind {
		case "CustomResourceDefinition":
			plural, group, _ := strings.Cut(o.Metadata.Name, ".")
			all[filepath.Join("config", "crd", "bases", group+"_"+plural+".yaml")] = "---\n" + text
		case "ClusterRole":
			all[filepath.Join("config", "rbac", "role.yaml")] = "---\n" + text
		case "ClusterRoleBinding":
			all[filepath.Join("config", "rbac", "role_binding.yaml")] = "---\n" + text
		}
	}
	require.Len(t, all, 4)
	return all
}
