package agent_test

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var rules = shuttle.Rules{DNS: shuttle.DNSSelector{Namespace: "kube-system", Labels: map[string]string{"k8s-app": "kube-dns"}}}

// uuid returns a UUID that ends in n.
func uuid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func project(n int, slug string) starbase.Project {
	return starbase.Project{ProjectID: uuid(n), WorkspaceID: uuid(1000 + n), Slug: slug, Namespace: "proj-" + slug}
}

func service(project, n int, environment, name string) starbase.Service {
	return starbase.Service{
		WorkspaceID: uuid(1000 + project), ProjectID: uuid(project), ServiceID: uuid(n), Environment: environment, ServiceName: name,
		Tier: "nova", Image: "example.com/" + name + ":1", Replicas: 2, Env: map[string]string{"GREETING": "hello"},
		Ports: []starbase.Port{{ContainerPort: 8080, Protocol: "TCP"}},
	}
}

func state(t *testing.T, generation int64, projects []starbase.Project, services ...starbase.Service) *starbase.DesiredState {
	t.Helper()
	s := &starbase.DesiredState{
		ClusterID: clusterID, Epoch: "e1", Generation: generation, ClusterConfig: starbase.ClusterConfig{LBSizeUnits: 1},
		Projects: projects, Services: services,
	}
	require.NoError(t, s.Seal())
	return s
}

func TestAServiceWithEverythingIsRenderedAsTheContractSays(t *testing.T) {
	t.Parallel()
	p := project(1, "shop")
	p.Quota = map[string]string{"pods": "50"}
	p.Limits = starbase.Limits{Default: map[string]string{"memory": "256Mi"}}
	p.Egress = []starbase.Egress{{CIDR: "203.0.113.0/24", Port: 5432, Protocol: "TCP"}}
	s := service(1, 2, "production", "storefront-with-a-very-long-name")
	s.Hostname = "shop.example.com"
	s.Ports = append(s.Ports, starbase.Port{ContainerPort: 8080, Protocol: "UDP"})
	s.Resources = starbase.Resources{Requests: map[string]string{"cpu": "0.1"}, Limits: map[string]string{"memory": "1024Mi"}}
	s.Probes = starbase.Probes{Readiness: starbase.Probe{Path: "/ready", Port: 8080}, Liveness: starbase.Probe{Port: 8080, PeriodSeconds: 5}}
	s.Autoscaling = starbase.Autoscaling{Min: 2, Max: 5, CPUPercent: 80}
	s.RestartNonce = uuid(77)
	s.Deployment = starbase.Deployment{ID: "d1", GitSHA: "abc", DeployedAt: "2026-11-20T00:00:00Z", DeployedBy: "ada", ChangeCause: "first"}
	rendered := shuttle.Render(state(t, 1, []starbase.Project{p}, s), clusterID, rules)
	require.Empty(t, rendered.Rejected)
	require.True(t, rendered.Services[0].Autoscaled)

	var got strings.Builder
	for _, o := range rendered.Objects {
		data, err := yaml.Marshal(o.Object)
		require.NoError(t, err)
		got.WriteString("---\n" + string(data))
	}
	golden := filepath.Join("testdata", "everything.yaml")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(string(want), got.String()), "run with -update to accept")

	_, err = apply.NewSet(shuttle.Owner(clusterID), rendered.Objects, apply.SetOptions{})
	require.NoError(t, err)
}

// TestAServiceBeginsWithinTheBoundsOfItsAutoscaler, which looks at what is stated alone.
func TestAServiceBeginsWithinTheBoundsOfItsAutoscaler(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		replicas, want int
		of             starbase.Autoscaling
		looks          []string
	}{
		{1, 2, starbase.Autoscaling{Min: 2, Max: 5, CPUPercent: 80}, []string{"cpu"}},
		{3, 3, starbase.Autoscaling{Min: 2, Max: 5, MemoryPercent: 70}, []string{"memory"}},
		{9, 5, starbase.Autoscaling{Min: 2, Max: 5, CPUPercent: 80, MemoryPercent: 70}, []string{"cpu", "memory"}},
		{9, 9, starbase.Autoscaling{}, nil},
	} {
		s := service(1, 2, "production", "web")
		s.Replicas, s.Autoscaling = test.replicas, test.of
		rendered := shuttle.Render(state(t, 1, []starbase.Project{project(1, "shop")}, s), clusterID, rules)
		require.Empty(t, rendered.Rejected)
		var looks []string
		for _, o := range rendered.Objects {
			switch o.GetKind() {
			case "Deployment":
				replicas, _, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas")
				require.NoError(t, err)
				require.EqualValues(t, test.want, replicas)
			case "HorizontalPodAutoscaler":
				found, _, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "metrics")
				require.NoError(t, err)
				metrics, _ := found.([]any)
				for _, each := range metrics {
					metric, _ := each.(map[string]any)
					name, _, err := unstructured.NestedString(metric, "resource", "name")
					require.NoError(t, err)
					looks = append(looks, name)
				}
			}
		}
		require.Equal(t, test.looks, looks)
	}
}

func TestAClusterHasAGatewayAndPullSecretsOfItsOwn(t *testing.T) {
	t.Parallel()
	routed := service(1, 2, "production", "api")
	routed.Hostname = "api.example.com"
	body := state(t, 1, []starbase.Project{project(1, "shop")}, routed)
	of := func(rules shuttle.Rules, kind string, fields ...string) any {
		rendered := shuttle.Render(body, clusterID, rules)
		require.Empty(t, rendered.Rejected)
		for _, o := range rendered.Objects {
			if o.GetKind() == kind {
				value, _, err := unstructured.NestedFieldNoCopy(o.Object, fields...)
				require.NoError(t, err)
				return value
			}
		}
		t.Fatalf("there is no %s", kind)
		return nil
	}
	edge := shuttle.Rules{Gateway: types.NamespacedName{Namespace: "edge", Name: "public"}, ImagePullSecrets: []string{"one", "two"}}
	require.Equal(t, []any{map[string]any{"namespace": "edge", "name": "public"}}, of(edge, "HTTPRoute", "spec", "parentRefs"))
	require.Equal(t, []any{map[string]any{"name": "one"}, map[string]any{"name": "two"}}, of(edge, "ServiceAccount", "imagePullSecrets"))
	public := func(rules shuttle.Rules) (except []any) {
		for _, rule := range of(rules, "NetworkPolicy", "spec", "egress").([]any) {
			for _, to := range rule.(map[string]any)["to"].([]any) {
				if block, ok := to.(map[string]any)["ipBlock"].(map[string]any); ok && block["except"] != nil {
					except = append(except, block["except"].([]any)...)
				}
			}
		}
		return except
	}
	private := []any{
		"10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7", "fe80::/10",
	}
	require.Equal(t, private, public(edge))
	edge.ClusterRanges = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("203.0.113.0/24")}
	require.Equal(t, slices.Concat(private[:6], []any{"203.0.113.0/24"}, private[6:], []any{"2001:db8::/32"}), public(edge))
	standard := []any{map[string]any{"namespace": "starform-gateway", "name": "starform-gateway"}}
	require.Equal(t, standard, of(shuttle.Rules{}, "HTTPRoute", "spec", "parentRefs"))
	require.Nil(t, of(shuttle.Rules{}, "ServiceAccount", "imagePullSecrets"))
	require.Equal(t, of(shuttle.Rules{}, "Deployment", "spec"), of(edge, "Deployment", "spec"), "a setting restarts no pod")
}

// TestAPodKeepsTheLevelThatItsServiceStatesWithinThatOfTheCluster looks at all that a level
// decides about.
func TestAPodKeepsTheLevelThatItsServiceStatesWithinThatOfTheCluster(t *testing.T) {
	t.Parallel()
	strict, loose := service(1, 2, "production", "strict"), service(1, 3, "production", "loose")
	loose.PodSecurity = isolation.Baseline
	body := state(t, 1, []starbase.Project{project(1, "shop")}, strict, loose)
	rendered := shuttle.Render(body, clusterID, shuttle.Rules{PodSecurity: isolation.Baseline})
	require.Empty(t, rendered.Rejected)
	found := map[string]string{}
	for _, o := range rendered.Objects {
		switch o.GetKind() {
		case "Namespace":
			require.Equal(t, "baseline", o.GetLabels()["pod-security.kubernetes.io/enforce"])
		case "Deployment":
			pod, _, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "template", "spec")
			require.NoError(t, err)
			spec, _ := pod.(map[string]any)
			containers, _ := spec["containers"].([]any)
			container, _ := containers[0].(map[string]any)
			text, err := json.Marshal([]any{spec["securityContext"], container["securityContext"]})
			require.NoError(t, err)
			found[o.GetLabels()["starform.io/service-name"]] = string(text)
		}
	}
	require.Equal(t, map[string]string{
		"strict": `[{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}]`,
		"loose":  `[{"seccompProfile":{"type":"RuntimeDefault"}},null]`,
	}, found)

	rendered = shuttle.Render(body, clusterID, shuttle.Rules{})
	require.Len(t, rendered.Rejected, 1)
	require.Equal(t, "Invalid", rendered.Rejected[0].Class)
	require.Equal(t, `pod_security: "baseline"; want what the cluster allows: restricted`, rendered.Rejected[0].Message)
	require.Len(t, rendered.Services, 1)
}

func TestAPodWaitsForWhatIsolatesAndLimitsItsOwnEnvironment(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*starbase.Project){
		"without limits": func(*starbase.Project) {},
		"with a quota":   func(p *starbase.Project) { p.Quota = map[string]string{"pods": "50"} },
		"with limits":    func(p *starbase.Project) { p.Limits = starbase.Limits{Default: map[string]string{"memory": "256Mi"}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := project(1, "shop")
			change(&p)
			rendered := shuttle.Render(
				state(t, 1, []starbase.Project{p}, service(1, 2, "production", "web"), service(1, 3, "staging", "web")),
				clusterID,
				rules,
			)
			require.Empty(t, rendered.Rejected)
			found := 0
			for _, d := range rendered.Objects {
				if d.GetKind() != "Deployment" {
					continue
				}
				waits := func(o *unstructured.Unstructured) bool {
					return slices.ContainsFunc(strings.Split(d.GetAnnotations()["starform.io/depends-on"], ","), func(id string) bool {
						return strings.HasPrefix(id, o.GetKind()) && strings.HasSuffix(id, "/"+o.GetNamespace()+"/"+o.GetName())
					})
				}
				for _, o := range rendered.Objects {
					environment := o.GetLabels()["starform.io/environment"]
					switch o.GetKind() {
					case "NetworkPolicy":
						require.Equal(t, environment == d.GetLabels()["starform.io/environment"], waits(o), o.GetName())
						found++
					case "ResourceQuota", "LimitRange":
						require.True(t, waits(o), o.GetName())
					}
				}
			}
			require.Equal(t, 4, found, "two policies for each of two")
		})
	}
}

func TestRenderingDependsOnTheStateAlone(t *testing.T) {
	t.Parallel()
	projects := []starbase.Project{project(1, "one"), project(2, "two")}
	services := []starbase.Service{service(1, 3, "production", "web"), service(2, 4, "staging", "api"), service(1, 3, "staging", "web")}
	want, err := json.Marshal(shuttle.Render(state(t, 1, projects, services...), clusterID, rules).Objects)
	require.NoError(t, err)
	projects[0], projects[1] = projects[1], projects[0]
	services[0], services[2] = services[2], services[0]
	got, err := json.Marshal(shuttle.Render(state(t, 1, projects, services...), clusterID, rules).Objects)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
	require.Equal(t, string(want), string(got))
}

func TestABadServiceIsRejectedAndHarmsNoOther(t *testing.T) {
	t.Parallel()
	good := service(1, 2, "production", "good")
	for name, test := range map[string]struct {
		class, message string
		broken         func(*starbase.Service)
	}{
		"replicas":    {"Invalid", "replicas is -1: want 0 to 1000", func(s *starbase.Service) { s.Replicas = -1 }},
		"environment": {"Invalid", "environment", func(s *starbase.Service) { s.Environment = strings.Repeat("x", 40) }},
		"port":        {"Invalid", "ports[0].container_port is 70000: want 1 to 65535", func(s *starbase.Service) { s.Ports[0].ContainerPort = 70000 }},
		"image":       {"Invalid", "image", func(s *starbase.Service) { s.Image = "two words" }},
		"pod level":   {"Invalid", `pod_security is "privileged": want restricted or baseline, or nothing for restricted`, func(s *starbase.Service) { s.PodSecurity = "privileged" }},
		"no project":  {"NoProject", "is not in the desired state", func(s *starbase.Service) { s.ProjectID = uuid(9) }},
		"route":       {"Invalid", `hostname: "a.example.com"; want a TCP port`, func(s *starbase.Service) { s.Hostname, s.Ports = "a.example.com", nil }},
		"duplicate":   {"DuplicateIdentity", "none of them is applied", func(s *starbase.Service) { s.ServiceID = uuid(4) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad, other := service(1, 3, "production", "bad"), service(1, 4, "production", "other")
			bad.Ports = []starbase.Port{{ContainerPort: 80, Protocol: "TCP"}}
			test.broken(&bad)
			rendered := shuttle.Render(state(t, 1, []starbase.Project{project(1, "shop")}, good, bad, other), clusterID, rules)
			require.Len(t, rendered.Rejected, 1)
			require.Equal(t, test.class, rendered.Rejected[0].Class)
			require.Contains(t, rendered.Rejected[0].Message, test.message)
			want := 2
			if name == "duplicate" {
				want = 1 // neither of the two
			}
			require.Len(t, rendered.Services, want)
			require.Equal(t, good.Identity(), rendered.Services[0].Identity)
		})
	}
}

func TestABadProjectRejectsItsServicesAlone(t *testing.T) {
	t.Parallel()
	bad := project(1, "shop")
	bad.Quota = map[string]string{"pods": "many"}
	twin := project(3, "two") // with the namespace of project 2
	rendered := shuttle.Render(state(t, 1, []starbase.Project{bad, project(2, "two"), twin},
		service(1, 5, "production", "a"), service(2, 6, "production", "b"), service(3, 7, "production", "c")), clusterID, rules)
	require.Len(t, rendered.Services, 1)
	require.Equal(t, uuid(2), rendered.Services[0].Identity.ProjectID)
	require.Len(t, rendered.Rejected, 2)
	require.Contains(t, rendered.Rejected[0].Message, `quota.pods is "many"`)
	require.Contains(t, rendered.Rejected[1].Message, "namespace proj-two is also that of project "+uuid(2))
}

func TestNoTwoServicesHaveObjectsOfOneName(t *testing.T) {
	t.Parallel()
	name := func(name, environment string) string {
		t.Helper()
		rendered := shuttle.Render(state(t, 1, []starbase.Project{project(1, "shop")}, service(1, 2, environment, name)), clusterID, rules)
		require.Len(t, rendered.Services, 1)
		return rendered.Services[0].Deployment.Name
	}
	require.Equal(t, "web-production-e79acd97", name("web", "production"), "a name that can be only that of one service stays")
	require.Equal(t, "x-a-b-e79acd97", name("x-a", "b"))
	require.NotEqual(t, name("x-a", "b"), name("x", "a-b"))
	require.Equal(t, "a-name-of-some-length-production-eu-e79acd97", name("a-name-of-some-length", "production-eu"),
		"no longer name can take a word of the environment")

	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // no secret
	word := func(longest int) string {
		text := []byte{'a'}
		for range random.IntN(longest) {
			text = append(text, "a-"[random.IntN(2)])
		}
		return strings.TrimRight(string(text), "-")
	}
	taken := map[string]string{} // the environment of each name, of one service id
	for range 5000 {
		environment := word(14)
		at := name(word(26), environment)
		require.LessOrEqual(t, len(at), 62)
		if before, ok := taken[at]; ok {
			require.Equal(t, before, environment, at)
		}
		taken[at] = environment
	}
}

func TestServicesWhoseNamesCollideAreAllRejected(t *testing.T) {
	t.Parallel()
	// Two service ids with one hash of 32 bits.
	ids := map[[4]byte]int{}
	first, second := 0, 0
	for n := 1; second == 0; n++ {
		sum := sha256.Sum256([]byte(uuid(n)))
		at := [4]byte(sum[:4])
		if ids[at] != 0 {
			first, second = ids[at], n
		}
		ids[at] = n
	}
	services := []starbase.Service{
		service(1, first, "production", "web"),
		service(1, second, "production", "web"),
		service(1, second, "staging", "web"),
	}
	rendered := shuttle.Render(state(t, 1, []starbase.Project{project(1, "shop")}, services...), clusterID, rules)
	require.Len(t, rendered.Services, 1)
	require.Equal(t, "staging", rendered.Services[0].Identity.Environment)
	require.Len(t, rendered.Rejected, 2)
	for i, r := range rendered.Rejected {
		require.Equal(t, "NameCollision", r.Class)
		require.Contains(t, r.Message, services[1-i].Identity().String())
	}
}

func TestBasicModeNeedsNoProjects(t *testing.T) {
	t.Parallel()
	s := service(1, 2, "production", "")
	body := &starbase.DesiredState{Version: "v1", Services: []starbase.Service{s}}
	rendered := shuttle.Render(body, clusterID, rules)
	require.Empty(t, rendered.Rejected)
	require.Equal(t, "proj-"+uuid(1), rendered.Objects[0].GetName())
	set, err := apply.NewSet(shuttle.Owner(clusterID), rendered.Objects, apply.SetOptions{})
	require.NoError(t, err)
	require.True(
		t,
		set.Has(apply.ID{Group: "apps", Kind: "Deployment", Namespace: "proj-" + uuid(1), Name: rendered.Services[0].Deployment.Name}),
	)
	require.LessOrEqual(t, len(rendered.Services[0].Deployment.Name), 63)
}

func TestTombstonesAreNotRendered(t *testing.T) {
	t.Parallel()
	gone := service(1, 2, "production", "web")
	gone.Deleted = true
	dead := project(2, "dead")
	dead.Deleted = true
	rendered := shuttle.Render(state(t, 1, []starbase.Project{project(1, "shop"), dead}, gone), clusterID, rules)
	require.Empty(t, rendered.Services)
	require.Empty(t, rendered.Rejected)
	for _, o := range rendered.Objects {
		require.Equal(t, uuid(1), "00000000-0000-4000-8000-"+o.GetLabels()["starform.io/project-id"][20:])
		require.NotEqual(t, "Deployment", o.GetKind())
	}
}
