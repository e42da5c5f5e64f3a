package readiness_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// TestReadinessAgreesWithAnotherToolsCases reads the cases of gitops-engine's own
// tests, object and expected health, from its module, and compares what we say.
// Nothing of it is kept here.
func TestReadinessAgreesWithAnotherToolsCases(t *testing.T) {
	t.Parallel()
	dir := module(t, "github.com/argoproj/gitops-engine@v0.7.3")
	cases := healthCases(t, filepath.Join(dir, "pkg", "health"))
	require.Greater(t, len(cases), 40)
	same := map[string]readiness.Status{
		"HealthStatusHealthy": readiness.Current, "HealthStatusProgressing": readiness.InProgress, "HealthStatusDegraded": readiness.Failed,
	}
	// Where it uses rules that differ from kstatus, and why.
	type other struct {
		status readiness.Status
		why    string
	}
	scaling := other{readiness.Current, "an autoscaler is what its spec says, whether or not it has metrics yet"}
	differ := map[string]other{
		"hpa-v1-degraded.yaml": scaling, "hpa-v2-degraded.yaml": scaling, "hpa-v2-progressing.yaml": scaling,
		"hpa-v1-progressing.yaml": scaling, "hpa-v1-progressing-with-no-annotations.yaml": scaling,
		"pod-running-restart-onfailure.yaml": {readiness.Failed, "a crash loop is a failure, whatever the restart policy"},
		"pod-running-restart-never.yaml":     {readiness.Current, "it is ready"},
		"pod-error.yaml":                     {readiness.InProgress, "its container ended with an error once, and may be started again"},
		"pod-deletion.yaml":                  {readiness.Terminating, "being deleted has a status of its own"},
		"deployment-suspended.yaml":          {readiness.InProgress, "paused half-way, it is not what its spec says"},
		"ingress-unassigned.yaml":            {readiness.Current, "not every controller assigns an address"},
	}
	agreed := 0
	for path, health := range cases {
		want, ok := same[health]
		d, differs := differ[filepath.Base(path)]
		if differs {
			want = d.status
		} else if ok {
			agreed++
		}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		var object unstructured.Unstructured
		require.NoError(t, yaml.Unmarshal(data, &object.Object))
		got := readiness.Of(&object)
		if got.Status != want {
			t.Errorf("%s is %s (%s) there; we say %s: %s", filepath.Base(path), health, d.why, got.Status, got.Message)
		}
	}
	require.Equal(t, len(cases)-len(differ), agreed)
	t.Logf("figure readiness_cases_agreed %d cases", agreed)
	t.Logf("figure readiness_cases_by_other_rules %d cases", len(differ))
}

// healthCases returns the object files and what the tests expect of each.
func healthCases(t *testing.T, dir string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "health_test.go"), nil, 0)
	require.NoError(t, err)
	cases := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 3 {
			return true
		}
		name, ok := call.Fun.(*ast.Ident)
		path, isText := call.Args[1].(*ast.BasicLit)
		status, isName := call.Args[2].(*ast.Ident)
		if !ok || name.Name != "assertAppHealth" || !isText || !isName {
			return true
		}
		at, err := strconv.Unquote(path.Value)
		require.NoError(t, err)
		cases[filepath.Join(dir, at)] = status.Name
		return true
	})
	return cases
}

// module returns the folder of a module at a version, downloaded if need be.
func module(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", path)
	cmd.Dir = t.TempDir() // outside of any module
	out, err := cmd.Output()
	var answer struct{ Dir, Error string }
	if decodeErr := json.Unmarshal(out, &answer); err != nil || decodeErr != nil || answer.Error != "" {
		if os.Getenv("TRUEUP_REQUIRE_SERVICES") == "1" {
			t.Fatalf("%s cannot be downloaded: %v %s", path, err, answer.Error)
		}
		t.Skipf("%s cannot be downloaded: %v %s", path, err, answer.Error)
	}
	return answer.Dir
}
