package agent_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
)

func varGroup(n, project int, environment string, entries map[string]string) starbase.VarGroup {
	return starbase.VarGroup{
		VarGroupID:  uuid(n),
		ProjectID:   uuid(project),
		Environment: environment,
		Entries:     entries,
		Checksum:    checksum(entries),
	}
}

func attach(s starbase.Service, groups ...int) starbase.Service {
	for order, n := range groups {
		s.VarGroups = append(s.VarGroups, starbase.ServiceVarGroup{VarGroupID: uuid(n), AttachOrder: order})
	}
	return s
}

// renderWith renders services of one project with groups.
func renderWith(t *testing.T, groups []starbase.VarGroup, services ...starbase.Service) shuttle.Rendered {
	t.Helper()
	s := state(t, 1, []starbase.Project{project(1, "shop"), project(2, "other")}, services...)
	s.VarGroups = groups
	require.NoError(t, s.Seal())
	return shuttle.Render(s, clusterID, rules)
}

func find(t *testing.T, r shuttle.Rendered, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range r.Objects {
		if o.GetKind() == kind && strings.HasPrefix(o.GetName(), name) {
			return o
		}
	}
	require.Fail(t, "there is no such object", "%s %s", kind, name)
	return nil
}

func TestGroupsAreRenderedInTheirOrderAndTheOwnVariablesLast(t *testing.T) {
	t.Parallel()
	groups := []starbase.VarGroup{
		varGroup(
			51,
			1,
			"",
			map[string]string{"A": "1", "B": "<&>"},
		),
		varGroup(52, 1, "production", map[string]string{"A": "2"}),
		varGroup(53, 2, "", nil),
	}
	web := attach(service(1, 11, "production", "web"), 52, 51)
	web.VarGroups[0], web.VarGroups[1] = web.VarGroups[1], web.VarGroups[0] // the order follows attach_order
	r := renderWith(t, groups, web, service(1, 12, "staging", "api"))
	require.Empty(t, r.Rejected)

	secret := find(t, r, "Secret", "vg-"+uuid(51))
	require.Equal(t, "proj-shop", secret.GetNamespace())
	require.Equal(
		t,
		map[string]any{"A": base64.StdEncoding.EncodeToString([]byte("1")), "B": base64.StdEncoding.EncodeToString([]byte("<&>"))},
		secret.Object["data"],
	)
	require.NotContains(t, secret.GetLabels(), "starform.io/environment")
	require.Equal(t, strings.ReplaceAll(uuid(51), "-", ""), secret.GetLabels()["starform.io/var-group-id"])
	require.Equal(t, "production", find(t, r, "Secret", "vg-"+uuid(52)).GetLabels()["starform.io/environment"])
	require.Equal(t, "proj-other", find(t, r, "Secret", "vg-"+uuid(53)).GetNamespace())

	deployment := find(t, r, "Deployment", "web")
	found, _, err := unstructured.NestedFieldNoCopy(deployment.Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	containers, _ := found.([]any)
	container, _ := containers[0].(map[string]any)
	require.Equal(t, []any{
		map[string]any{"secretRef": map[string]any{"name": "vg-" + uuid(52)}},
		map[string]any{"secretRef": map[string]any{"name": "vg-" + uuid(51)}},
		map[string]any{"configMapRef": map[string]any{"name": deployment.GetName()}},
	}, container["envFrom"])
	checksum, _, err := unstructured.NestedString(
		deployment.Object,
		"spec",
		"template",
		"metadata",
		"annotations",
		"starform.io/var-group-checksum",
	)
	require.NoError(t, err)
	require.Equal(t, starbase.VarGroupChecksum(&groups[1], &groups[0]), checksum)
	for _, id := range []int{51, 52} {
		require.Contains(t, deployment.GetAnnotations()["starform.io/depends-on"], "vg-"+uuid(id))
	}
	_, has, err := unstructured.NestedString(
		find(t, r, "Deployment", "api").Object,
		"spec",
		"template",
		"metadata",
		"annotations",
		"starform.io/var-group-checksum",
	)
	require.NoError(t, err)
	require.False(t, has)
	for i := range r.Services {
		shared := 0
		for _, id := range r.Services[i].Shared {
			if id.Kind == "Secret" {
				shared++
			}
		}
		require.Len(t, web.VarGroups, 2)
		require.Equal(t, map[string]int{uuid(11): 2, uuid(12): 0}[r.Services[i].Identity.ServiceID], shared, "what it needs, no more")
	}
}

// TestTheSecretsOfAProjectAreInTheOrderOfTheirNames, however a map has the groups.
func TestTheSecretsOfAProjectAreInTheOrderOfTheirNames(t *testing.T) {
	t.Parallel()
	var groups []starbase.VarGroup
	var want, got []string
	for n := range 20 {
		groups = append(groups, varGroup(51+n, 1, "", nil))
		want = append(want, "vg-"+uuid(51+n))
	}
	for _, o := range renderWith(t, groups).Objects {
		if o.GetKind() == "Secret" {
			got = append(got, o.GetName())
		}
	}
	slices.Sort(want)
	require.Equal(t, want, got)
}

// checksum is another one for other entries, as a server makes it with its key.
func checksum(entries map[string]string) string {
	ring, err := controlplanetest.ParseKeys("one " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))))
	if err != nil {
		panic(err)
	}
	group := starbase.VarGroup{Entries: entries}
	sum, err := ring.MAC(group.Canonical(), "")
	if err != nil {
		panic(err)
	}
	return "hmac-sha256:" + sum
}

func TestTheChecksumIsThatOfTheContract(t *testing.T) {
	t.Parallel()
	// printf 'hmac-sha256:11\nhmac-sha256:22\n' | sha256sum
	first, second := starbase.VarGroup{Checksum: "hmac-sha256:11"}, starbase.VarGroup{Checksum: "hmac-sha256:22"}
	require.Equal(t, "sha256:fa2c184e9d2e716ade6743072414fdce9e2f3fef8d4da0692950203a94076abf", starbase.VarGroupChecksum(&first, &second))
	require.NotEqual(t, starbase.VarGroupChecksum(&first, &second), starbase.VarGroupChecksum(&second, &first))
}

func TestAServiceWhoseGroupCannotBeIsRejectedAndHarmsNoOther(t *testing.T) {
	t.Parallel()
	good, other := varGroup(51, 1, "", map[string]string{"A": "1"}), varGroup(52, 2, "", nil)
	invalid, wrong := varGroup(53, 1, "", map[string]string{"1 A": "canary"}), varGroup(54, 1, "", map[string]string{"A": "canary"})
	wrong.Checksum = "sha256:0"
	groups := []starbase.VarGroup{
		good,
		other,
		invalid,
		wrong,
		varGroup(55, 1, "staging", nil),
		varGroup(56, 1, "", nil),
		varGroup(56, 1, "", map[string]string{"A": "canary"}),
		varGroup(56, 1, "", nil),
	}
	for name, test := range map[string]struct {
		group          int
		class, message string
	}{
		"one that is not there":   {59, "NoVarGroup", "the group is not in the desired state"},
		"one of another project":  {52, "Invalid", "want a group of the project"},
		"another environment's":   {55, "Invalid", "for this environment or for all"},
		"a key that is no name":   {53, "Invalid", "entries"},
		"what is no checksum":     {54, "Invalid", "checksum"},
		"one that is there twice": {56, "Invalid", "more than once"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := renderWith(t, groups, attach(service(1, 11, "production", "web"), 51), attach(service(1, 12, "production", "bad"), 51, test.group))
			require.Len(t, r.Rejected, 1)
			require.Equal(t, uuid(12), r.Rejected[0].Identity.ServiceID)
			require.Equal(t, test.class, r.Rejected[0].Class)
			require.Contains(t, r.Rejected[0].Message, "var_groups[1].var_group_id")
			require.Contains(t, r.Rejected[0].Message, test.message)
			require.NotContains(t, r.Rejected[0].Message, "canary")
			require.Len(t, r.Services, 1)
			find(t, r, "Secret", "vg-"+uuid(51))
			for _, o := range r.Objects {
				for _, bad := range []int{53, 54, 56} {
					require.NotEqual(t, "vg-"+uuid(bad), o.GetName())
				}
			}
		})
	}
}
