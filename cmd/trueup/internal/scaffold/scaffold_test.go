package scaffold_test

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/scaffold"
)

func TestWhatIsWrittenIsOfTheKind(t *testing.T) {
	t.Parallel()
	files, err := scaffold.Project{Module: "example.org/team/proxies/v2", Kind: "Proxy", Group: "net.example.org", Version: "v0.3.0"}.Files()
	require.NoError(t, err)
	require.Equal(t, []string{
		".dockerignore", ".gitignore", "Dockerfile", "README.md", "children.go", "deploy/crd.yaml", "deploy/operator.yaml", "deploy/rbac.yaml",
		"go.mod", "main.go",
		"operator_test.go", "rights_test.go", "simulated_test.go", "types.go",
	}, slices.Sorted(maps.Keys(files)))
	declared := map[string]bool{}
	for name, content := range files {
		require.NotContains(t, content, "[[", name)
		require.NotContains(t, content, "<no value>", name)
		switch filepath.Ext(name) {
		case ".go":
			formatted, err := format.Source([]byte(content))
			require.NoError(t, err, name)
			require.Equal(t, string(formatted), content, name)
			parsed, err := parser.ParseFile(token.NewFileSet(), name, content, parser.SkipObjectResolution)
			require.NoError(t, err)
			require.Equal(t, "main", parsed.Name.Name)
			for _, decl := range parsed.Decls {
				switch decl := decl.(type) {
				case *ast.FuncDecl:
					declared[decl.Name.Name] = true
				case *ast.GenDecl:
					for _, spec := range decl.Specs {
						if kind, ok := spec.(*ast.TypeSpec); ok {
							declared[kind.Name.Name] = true
						}
					}
				}
			}
		case ".yaml":
			for document := range strings.SplitSeq(content, "\n---\n") {
				var object map[string]any
				require.NoError(t, yaml.UnmarshalStrict([]byte(document), &object), name)
				require.NotEmpty(t, object["kind"], name)
			}
		}
	}
	for _, name := range []string{
		"Proxy", "ProxySpec", "ProxyStatus", "main", "run", "newOperator", "children", "TestOnARealKubernetes", "TestInASimulatedWorld",
	} {
		require.True(t, declared[name], name)
	}
	require.Contains(t, files["go.mod"], "module example.org/team/proxies/v2\n")
	require.Contains(t, files["go.mod"], "\tgithub.com/seed-9e1ffd66/trueup v0.3.0\n")
	require.Contains(t, files["main.go"], `Name: "proxies", Domain: "net.example.org"`)
	require.Contains(t, files["deploy/crd.yaml"], "metadata: {name: proxies.net.example.org}")
	require.Contains(t, files["deploy/rbac.yaml"], `- {apiGroups: ["net.example.org"], resources: [proxies/status], verbs: [patch]}`)
}

func TestThePluralIsTheOneThatWasGiven(t *testing.T) {
	t.Parallel()
	p := scaffold.Project{Module: "example.com/boxes", Kind: "Box", Plural: "boxes"}
	require.NoError(t, p.Check())
	files, err := p.Files()
	require.NoError(t, err)
	require.Contains(t, files["deploy/crd.yaml"], "names: {plural: boxes, singular: box, kind: Box, listKind: BoxList}")
	for name, content := range files {
		require.NotContains(t, content, "boxs", name)
	}
	require.Contains(t, files["deploy/rbac.yaml"], "resources: [boxes]")
	require.Contains(t, files["main.go"], `Resource: "boxes"`)
}

func TestWhatIsWrongIsNamedByItsFlag(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]scaffold.Project{
		"--module: is missing":                           {Kind: "Site"},
		`--module: is "https://x/y", must be`:            {Module: "https://x/y", Kind: "Site"},
		`--module: is "example.com/Sites", must end`:     {Module: "example.com/Sites", Kind: "Site"},
		"--kind: is missing":                             {Module: "example.com/sites"},
		`--kind: is "site", must be a capital`:           {Module: "example.com/sites", Kind: "site"},
		`--kind: is "Web_Site", must be a capital`:       {Module: "example.com/sites", Kind: "Web_Site"},
		`--kind: is "Service", must not be a kind`:       {Module: "example.com/sites", Kind: "Service"},
		`--kind: is "TestBed", must not begin`:           {Module: "example.com/sites", Kind: "TestBed"},
		`in lower case, such as boxs`:                    {Module: "example.com/sites", Kind: "Box", Plural: "Boxes"},
		`--plural: is "box", must be the plural`:         {Module: "example.com/sites", Kind: "Box", Plural: "box"},
		`--group: is "example", must be a DNS`:           {Module: "example.com/sites", Kind: "Site", Group: "example"},
		`--group: is "Example.com", must be a DNS`:       {Module: "example.com/sites", Kind: "Site", Group: "Example.com"},
		`--group: is "apps.k8s.io", must be a domain of`: {Module: "example.com/sites", Kind: "Site", Group: "apps.k8s.io"},
	} {
		require.ErrorContains(t, p.Check(), want)
	}
	require.NoError(t, scaffold.Project{Module: "sites", Kind: "Site"}.Check())
}

func TestAFolderWithAnythingIsLeftAlone(t *testing.T) {
	t.Parallel()
	p := scaffold.Project{Module: "example.com/sites", Kind: "Site"}
	dir := t.TempDir()
	require.NoError(t, p.Write(dir), "it is empty")
	before, err := os.ReadDir(dir)
	require.NoError(t, err)
	for path, mode := range map[string]os.FileMode{"main.go": 0o644, "deploy": 0o755, "deploy/crd.yaml": 0o644} {
		other := filepath.Join(t.TempDir(), "other")
		if mode&0o111 != 0 {
			require.NoError(t, os.Mkdir(other, mode))
		} else {
			require.NoError(t, os.WriteFile(other, nil, mode))
		}
		want, err := os.Stat(other) // minus the umask
		require.NoError(t, err)
		got, err := os.Stat(filepath.Join(dir, path))
		require.NoError(t, err)
		require.Equal(t, want.Mode(), got.Mode(), path)
	}
	require.ErrorContains(t, p.Write(dir), dir+" has .dockerignore, must be empty or not be there")
	file := filepath.Join(dir, "main.go")
	require.ErrorContains(t, p.Write(file), "FOLDER: ")
	after, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, after, len(before))
}

// TestANewOperatorBuildsAndPassesItsTests runs go vet and all its tests, in a module of its own.
func TestANewOperatorBuildsAndPassesItsTests(t *testing.T) {
	if testing.Short() {
		t.Skip("long: go vet and go test in a new module, with modules from a proxy")
	}
	t.Parallel()
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	above := t.TempDir()
	require.NoError(t, os.Symlink(root, filepath.Join(above, "trueup"))) // a clone beside it
	dir := filepath.Join(above, "sites")
	require.NoError(t, scaffold.Project{Module: "example.org/sites", Kind: "Site", Group: "sites.example.org"}.Write(dir))
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %v: %s", args, out)
		return string(out)
	}
	for _, module := range scaffold.Modules {
		run("mod", "edit", "-replace", module+"="+filepath.Join("..", "trueup", strings.TrimPrefix(module, scaffold.Modules[0])))
	}
	run("mod", "tidy")
	run("vet", "./...")
	out := run("test", "-v", "-timeout", "5m", "./...")
	for _, test := range []string{"TestOnARealKubernetes", "TestInASimulatedWorld", "TestTheRoleIsWhatTheOperatorNeeds"} {
		require.Contains(t, out, "--- PASS: "+test)
	}

	// What the Dockerfile builds does not see the clone.
	text, err := os.ReadFile(filepath.Join(dir, "Dockerfile"))
	require.NoError(t, err)
	require.Contains(t, string(text), "go mod vendor")
	require.Contains(t, string(text), "CGO_ENABLED=0 go build -trimpath -o /sites .")
	run("mod", "vendor")
	alone := filepath.Join(t.TempDir(), "src")
	require.NoError(t, os.Rename(dir, alone))
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(t.TempDir(), "sites"), ".")
	build.Dir, build.Env = alone, append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	built, err := build.CombinedOutput()
	require.NoError(t, err, string(built))
}
