package folder_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/folder"
)

func TestReadNamesFileAndLine(t *testing.T) {
	t.Parallel()
	const good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for name, c := range map[string]struct {
		files   map[string]string
		objects string // name@file:line
		faults  string
	}{
		"documents, comments, an empty one": {
			map[string]string{"a.yaml": "# one\n" + good + "---\n---\n# two\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"},
			"a@a.yaml:2 b@a.yaml:9", "",
		},
		"sub-folders, other files": {
			map[string]string{"x/a.yml": good, "x/.git/b.yaml": "{", ".c.yaml": "{", "README.md": "{", "j.json": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}`},
			"p@j.json:1 a@x/a.yml:1", "",
		},
		"a list": {
			map[string]string{"l.yaml": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n- apiVersion: v1\n  kind: Pod\n"},
			"a@l.yaml:4", "l.yaml:7: Pod: metadata.name: is missing",
		},
		"cut off: the file is left out": {
			map[string]string{"a.yaml": good + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b", "b.yaml": good},
			"a@b.yaml:1", "a.yaml:6: is no YAML: did not find expected ',' or '}'",
		},
		"one name twice": {
			map[string]string{"a.yaml": good, "b.yaml": "---\n" + good + "---\n{apiVersion: v1, kind: Pod, metadata: {name: a}}\n"},
			"a@b.yaml:6", "b.yaml:2: ConfigMap a is also in a.yaml:1: one of them must go",
		},
		"one name in two namespaces, and in two versions": {
			map[string]string{"a.yaml": "{apiVersion: b/v1, kind: A, metadata: {name: a, namespace: x}}\n---\n{apiVersion: b/v1, kind: A, metadata: {name: a, namespace: y}}\n---\n{apiVersion: b/v2, kind: A, metadata: {name: a, namespace: y}}"},
			"a@a.yaml:1", "a.yaml:5: A a is also in a.yaml:3: one of them must go",
		},
		"no object":       {map[string]string{"a.yaml": "\n- a\n- b\n"}, "", "a.yaml:2: is no object: want apiVersion, kind and metadata"},
		"no kind":         {map[string]string{"a.yaml": "apiVersion: v1\nmetadata: {name: a}\n"}, "", "a.yaml:1: kind: is missing"},
		"no apiVersion":   {map[string]string{"a.yaml": "kind: Pod\nmetadata: {name: a}\n"}, "", "a.yaml:1: apiVersion: is missing"},
		"bad apiVersion":  {map[string]string{"a.yaml": "{kind: Pod, apiVersion: a/b/c, metadata: {name: a}}"}, "", `a.yaml:1: apiVersion: is "a/b/c", must be group/version, or v1`},
		"a name of a map": {map[string]string{"a.yaml": "{kind: Pod, apiVersion: v1, metadata: {name: {}}}"}, "", "a.yaml:1: Pod: metadata.name: is missing"},
		"no base64": {
			map[string]string{"a.yaml": "\n\n{kind: Secret, apiVersion: v1, metadata: {name: a}, data: {a: aGk=, p: hunter-2}}"},
			"", "a.yaml:3: data.p of Secret a: must be base64 (plain text belongs in stringData)",
		},
		"a key twice": {
			map[string]string{"a.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}\n---\n{kind: Pod, apiVersion: v1, metadata: {name: b}, spec: {a: 1, a: 2}}"},
			"a@a.yaml:1", `a.yaml:6: key "a" already set in map`,
		},
		"no files": {map[string]string{"README.md": ""}, "", ".: has no file that ends in .yaml, .yml or .json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, content := range c.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
			}
			objects, faults := folder.Read([]string{dir}, nil)
			var have, wrong []string
			for _, o := range objects {
				have = append(have, o.GetName()+"@"+strings.TrimPrefix(o.At, dir+"/"))
			}
			for _, err := range faults {
				wrong = append(wrong, strings.ReplaceAll(strings.ReplaceAll(err.Error(), dir+"/", ""), dir, "."))
			}
			require.Equal(t, c.objects, strings.Join(have, " "))
			require.Equal(t, c.faults, strings.Join(wrong, "\n"))
		})
	}
}

func TestReadTakesStandardInput(t *testing.T) {
	t.Parallel()
	objects, faults := folder.Read([]string{folder.Stdin}, strings.NewReader("\napiVersion: v1\nkind: Pod\nmetadata: {name: 1}\n"))
	require.Empty(t, objects)
	require.Len(t, faults, 1)
	require.EqualError(t, faults[0], "standard input:2: Pod: metadata.name: is missing")
	_, faults = folder.Read([]string{folder.Stdin}, strings.NewReader(" \n"))
	require.EqualError(t, faults[0], "standard input: is empty, must be YAML")
	_, faults = folder.Read([]string{filepath.Join(t.TempDir(), "none")}, nil)
	require.ErrorContains(t, faults[0], "none: cannot be read: no such file or directory")
}

func TestAFileThatCannotBeReadIsAFault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("{apiVersion: v1, kind: Pod, metadata: {name: a}}"), 0o600))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "b.yaml")))
	objects, faults := folder.Read([]string{dir}, nil)
	require.Len(t, objects, 1)
	require.Len(t, faults, 1)
	require.EqualError(t, faults[0], filepath.Join(dir, "b.yaml")+": cannot be read: no such file or directory")
}

func TestTheFolderItselfMayBeginWithADot(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), ".deploy")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("{apiVersion: v1, kind: Pod, metadata: {name: a}}"), 0o600))
	objects, faults := folder.Read([]string{dir}, nil)
	require.Empty(t, faults)
	require.Len(t, objects, 1)
}

// TestLinks has a link to the folder, to a file in it, and to a folder in it.
func TestLinks(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	shop, other := filepath.Join(at, "shop"), filepath.Join(at, "other")
	require.NoError(t, errors.Join(os.Mkdir(shop, 0o700), os.Mkdir(other, 0o700)))
	text := []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	require.NoError(t, os.WriteFile(filepath.Join(other, "real.yaml"), text, 0o600))
	require.NoError(t, os.Symlink(filepath.Join(other, "real.yaml"), filepath.Join(shop, "a.yaml")))
	require.NoError(t, os.Symlink(shop, filepath.Join(at, "link")))
	objects, faults := folder.Read([]string{filepath.Join(at, "link")}, nil)
	require.Empty(t, faults)
	require.Len(t, objects, 1)
	require.NoError(t, os.Symlink(other, filepath.Join(shop, "more")))
	_, faults = folder.Read([]string{shop}, nil)
	require.Len(t, faults, 1)
	require.ErrorContains(t, faults[0], filepath.Join(shop, "more")+": is a link to a folder, must be a folder or a file: name it with -f")
}
