package operator //nolint:testpackage // what is rendered is not exported

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/database"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// site is an operator with every service, none of which is asked.
func site(t *testing.T) *operator {
	t.Helper()
	db, err := database.Open(t.Context(), database.Options{URL: "postgresql://operator:adm1n@db.internal:5432/platform?sslmode=require"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return &operator{
		cluster: "cluster-1", database: db, logger: slog.New(slog.DiscardHandler),
		settings: Settings{
			BaseDomain:  "example.com",
			KeycloakURL: "https://auth.example.com",
			S3Endpoint:  "https://s3.internal",
			S3Region:    "eu-west-1",
			Redis:       "redis.internal",
			OpenSearch:  "search.internal",
		},
	}
}

// small returns an Application with the required fields and the defaults of the server.
func small() *v1alpha1.Application {
	app := &v1alpha1.Application{}
	app.Name, app.Namespace, app.UID, app.Generation = "shop", "team", "3f6c2c0e-0000-4000-8000-000000000001", 1
	app.Spec = v1alpha1.ApplicationSpec{
		Repository:  "github.com/team/shop",
		Branch:      "main",
		Framework:   "nextjs",
		Environment: v1alpha1.Production,
		ImageRef:    "registry.example.com/shop:1",
		Scaling: v1alpha1.Scaling{
			Min:       2,
			Max:       20,
			TargetCPU: 70,
		},
		Database: v1alpha1.Database{AnonRead: true, Migrations: v1alpha1.Migrations{Path: "./migrations"}},
	}
	return app
}

// whole is one that sets every field.
func whole() *v1alpha1.Application {
	app := small()
	spec := &app.Spec
	spec.Environment = v1alpha1.Staging
	spec.EnvVars = []v1alpha1.EnvVar{
		{Name: "GREETING", Value: "hello"},
		{Name: "TOKEN", SecretKeyRef: &v1alpha1.SecretKey{Name: "tokens", Key: "api"}},
	}
	spec.Database.Enabled, spec.Database.Migrations.Engine = true, "prisma"
	spec.Storage = v1alpha1.Storage{
		Enabled: true,
		RoleARN: "arn:aws:iam::123456789012:role/shop",
		Buckets: []v1alpha1.Bucket{{Name: "uploads", MaxFileSize: "10MB"}, {Name: "public", Public: true}},
	}
	spec.Auth, spec.Redis.Enabled, spec.Search.Enabled = v1alpha1.Auth{Enabled: true}, true, true
	spec.Scaling = v1alpha1.Scaling{Min: 3, Max: 9, TargetCPU: 55}
	spec.Network.From = []v1alpha1.Peer{{Application: "admin"}, {Namespace: "monitoring"}}
	return app
}

// rendered returns all that is made in the cluster for a subject, as YAML.
func rendered(t *testing.T, w *operator, s subject) (string, []*unstructured.Unstructured) {
	t.Helper()
	p := w.newPass(s)
	p.granted = p.host()
	p.password, p.secretVersion = "the-password", "1" // the role's
	var configs []*unstructured.Unstructured
	for _, part := range p.parts {
		if part.outside.Wanted {
			made, err := part.configs(t.Context())
			require.NoError(t, err)
			configs = append(configs, made...)
		}
	}
	objects := slices.Concat(p.subject.home, configs, p.workload(configs))
	if p.migration.command != nil {
		objects = append(objects, p.migrationJob(configs))
	}
	ignore, err := ignored()
	require.NoError(t, err)
	_, err = apply.NewSet(owner(), objects, apply.SetOptions{Part: string(p.subject.app.UID), Ignore: ignore, Gate: true})
	require.NoError(t, err)
	var text strings.Builder
	for _, o := range objects {
		data, err := yaml.Marshal(o.Object)
		require.NoError(t, err)
		text.WriteString("---\n" + string(data))
	}
	return text.String(), objects
}

// goldenSubjects returns the subjects of the golden files.
func goldenSubjects(w *operator) map[string]subject {
	preview := &v1alpha1.PreviewEnvironment{}
	preview.Name, preview.Namespace, preview.UID = "shop-7", "team", "3f6c2c0e-0000-4000-8000-000000000007"
	preview.Spec = v1alpha1.PreviewEnvironmentSpec{
		ApplicationRef: "shop",
		PullRequest:    7,
		Branch:         "feature",
		TTL:            "72h",
		ImageRef:       "registry.example.com/shop:pr-7",
	}
	parent := whole()
	parent.Spec.Previews.Team = []v1alpha1.Subject{{Kind: "Group", Name: "shop-developers"}, {Kind: "ServiceAccount", Name: "ci"}}
	return map[string]subject{"small": w.application(small()), "whole": w.application(whole()), "preview": w.copyOf(preview, parent)}
}

// TestApplicationsAreRenderedAsTheContractSays is B8, with what goes around it.
func TestApplicationsAreRenderedAsTheContractSays(t *testing.T) {
	t.Parallel()
	w := site(t)
	for name, s := range goldenSubjects(w) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := rendered(t, w, s)
			golden := filepath.Join("testdata", "render", name+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o750))
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(string(want), got), "-update rewrites %s; each change is one of the contract", golden)
		})
	}
}

// TestHostileCells is table B8 itself, a cell at a time: a golden file that is rewritten
// says nothing about the contract.
func TestHostileCells(t *testing.T) {
	t.Parallel()
	w := site(t)
	_, objects := rendered(t, w, w.application(whole()))
	at := func(kind, name string) *unstructured.Unstructured {
		t.Helper()
		i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
		require.GreaterOrEqual(t, i, 0, "%s %s", kind, name)
		return objects[i]
	}
	containers, _, err := unstructured.NestedSlice(at("Deployment", "shop").Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	require.Len(t, containers, 2)
	app, rest := containers[0].(object), containers[1].(object)
	env := func(container object, name string) any {
		all, _ := container["env"].([]any)
		for _, e := range all {
			if one := e.(object); one["name"] == name {
				if one["value"] != nil {
					return one["value"]
				}
				return one["valueFrom"]
			}
		}
		return nil
	}
	field := func(o map[string]any, path ...string) any {
		t.Helper()
		found, _, err := unstructured.NestedFieldNoCopy(o, path...)
		require.NoError(t, err)
		return found
	}
	host := "shop.staging.example.com"
	port := func(name string, number, target int64) object {
		return object{"name": name, "port": number, "targetPort": target, "protocol": "TCP"}
	}
	probe := func(delay, period int64) object {
		return object{"httpGet": object{"path": "/healthz", "port": "http"}, "initialDelaySeconds": delay, "periodSeconds": period}
	}
	route := func(path, pathType, port string) []any {
		return []any{
			object{
				"host": host,
				"http": object{
					"paths": []any{
						object{"path": path, "pathType": pathType, "backend": object{"service": object{"name": "shop", "port": object{"name": port}}}},
					},
				},
			},
		}
	}
	from := func(namespace string) object {
		return object{"namespaceSelector": object{"matchLabels": object{"kubernetes.io/metadata.name": namespace}}}
	}
	admin := from("team")
	admin["podSelector"] = object{"matchLabels": object{"platform.internal/app": "admin"}}
	sorted := func(of any) any {
		data, err := yaml.Marshal(of)
		require.NoError(t, err)
		return string(data)
	}
	confinedPod := object{"runAsNonRoot": true, "seccompProfile": object{"type": "RuntimeDefault"}}
	for cell, c := range map[string]struct{ got, want any }{
		"image of PostgREST":           {rest["image"], "postgrest/postgrest:v12.2.3"},
		"user of PostgREST":            {rest["securityContext"], object{"allowPrivilegeEscalation": false, "capabilities": object{"drop": []any{"ALL"}}, "readOnlyRootFilesystem": true, "runAsUser": int64(1000)}},
		"resources of PostgREST":       {rest["resources"], object{"requests": object{"cpu": "50m", "memory": "64Mi"}}},
		"PGRST_DB_URI":                 {env(rest, "PGRST_DB_URI"), object{"secretKeyRef": object{"name": "shop-db", "key": "POSTGREST_DB_URI"}}},
		"PGRST_DB_SCHEMAS":             {env(rest, "PGRST_DB_SCHEMAS"), "staging_shop"},
		"PGRST_DB_ANON_ROLE":           {env(rest, "PGRST_DB_ANON_ROLE"), "staging_shop_anon"},
		"PGRST_SERVER_PORT":            {env(rest, "PGRST_SERVER_PORT"), "3001"},
		"PGRST_DB_CHANNEL_ENABLED":     {env(rest, "PGRST_DB_CHANNEL_ENABLED"), "true"},
		"port of PostgREST":            {rest["ports"], []any{object{"name": "rest", "containerPort": int64(3001), "protocol": "TCP"}}},
		"POSTGREST_URL":                {env(app, "POSTGREST_URL"), "https://" + host + "/api/rest"},
		"POSTGREST_INTERNAL_URL":       {env(app, "POSTGREST_INTERNAL_URL"), "http://localhost:3001"},
		"port of the app":              {app["ports"], []any{object{"name": "http", "containerPort": int64(3000), "protocol": "TCP"}}},
		"resources of the app":         {app["resources"], object{"requests": object{"cpu": "100m", "memory": "256Mi"}, "limits": object{"cpu": "1", "memory": "512Mi"}}},
		"readiness":                    {app["readinessProbe"], probe(5, 10)},
		"liveness":                     {app["livenessProbe"], probe(15, 20)},
		"confinement of the app":       {app["securityContext"], object{"allowPrivilegeEscalation": false, "capabilities": object{"drop": []any{"ALL"}}}},
		"confinement of the pod":       {field(at("Deployment", "shop").Object, "spec", "template", "spec", "securityContext"), confinedPod},
		"token of the pod":             {field(at("Deployment", "shop").Object, "spec", "template", "spec", "automountServiceAccountToken"), false},
		"variables":                    {env(app, "TOKEN"), object{"secretKeyRef": object{"name": "tokens", "key": "api"}}},
		"envFrom":                      {sorted(app["envFrom"]), sorted([]any{object{"secretRef": object{"name": "shop-db"}}, object{"configMapRef": object{"name": "shop-storage"}}, object{"configMapRef": object{"name": "shop-auth"}}, object{"configMapRef": object{"name": "shop-redis"}}, object{"configMapRef": object{"name": "shop-search"}}})},
		"Service":                      {field(at("Service", "shop").Object, "spec", "ports"), []any{port("http", 80, 3000), port("rest", 3001, 3001)}},
		"Ingress":                      {field(at("Ingress", "shop").Object, "spec", "rules"), route("/", "Prefix", "http")},
		"Ingress of the API":           {field(at("Ingress", "shop-api").Object, "spec", "rules"), route(`/api/rest(/|$)(.*)`, "ImplementationSpecific", "rest")},
		"rewrite of the API":           {at("Ingress", "shop-api").GetAnnotations()["nginx.ingress.kubernetes.io/rewrite-target"], "/$2"},
		"no rewrite of the app":        {at("Ingress", "shop").GetAnnotations()["nginx.ingress.kubernetes.io/rewrite-target"], ""},
		"issuer":                       {at("Ingress", "shop").GetAnnotations()["cert-manager.io/cluster-issuer"], "letsencrypt-prod"},
		"issuer of the API":            {at("Ingress", "shop-api").GetAnnotations()["cert-manager.io/cluster-issuer"], "letsencrypt-prod"},
		"external-dns":                 {at("Ingress", "shop").GetAnnotations()["external-dns.alpha.kubernetes.io/hostname"], host},
		"external-dns of the API":      {at("Ingress", "shop-api").GetAnnotations()["external-dns.alpha.kubernetes.io/hostname"], host},
		"TLS":                          {field(at("Ingress", "shop").Object, "spec", "tls"), []any{object{"hosts": []any{host}, "secretName": "shop-tls"}}},
		"TLS of the API":               {field(at("Ingress", "shop-api").Object, "spec", "tls"), []any{object{"hosts": []any{host}, "secretName": "shop-tls"}}},
		"class":                        {field(at("Ingress", "shop").Object, "spec", "ingressClassName"), "nginx"},
		"class of the API":             {field(at("Ingress", "shop-api").Object, "spec", "ingressClassName"), "nginx"},
		"IAM role of the pods":         {at("ServiceAccount", "shop").GetAnnotations()["eks.amazonaws.com/role-arn"], "arn:aws:iam::123456789012:role/shop"},
		"repository":                   {at("Deployment", "shop").GetAnnotations()["platform.internal/repository"], "github.com/team/shop"},
		"branch":                       {at("Deployment", "shop").GetAnnotations()["platform.internal/branch"], "main"},
		"bounds of the autoscaler":     {[]any{field(at("HorizontalPodAutoscaler", "shop").Object, "spec", "minReplicas"), field(at("HorizontalPodAutoscaler", "shop").Object, "spec", "maxReplicas")}, []any{int64(3), int64(9)}},
		"aim of the autoscaler":        {field(at("HorizontalPodAutoscaler", "shop").Object, "spec", "metrics"), []any{object{"type": "Resource", "resource": object{"name": "cpu", "target": object{"type": "Utilization", "averageUtilization": int64(55)}}}}},
		"what may connect":             {sorted(field(at("NetworkPolicy", "shop").Object, "spec", "ingress")), sorted([]any{object{"from": []any{from("ingress-nginx"), admin, from("monitoring")}, "ports": []any{object{"protocol": "TCP", "port": int64(3000)}, object{"protocol": "TCP", "port": int64(3001)}}}})},
		"whom the policy is about":     {field(at("NetworkPolicy", "shop").Object, "spec", "podSelector"), object{"matchLabels": object{"platform.internal/app": "shop", "platform.internal/environment": "staging"}}},
		"parameters of the connection": {field(at("Secret", "shop-db").Object, "stringData", "POSTGREST_DB_URI"), "postgresql://staging_shop_app:the-password@db.internal:5432/platform?sslmode=require"},
	} {
		t.Run(cell, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.got)
		})
	}
}

// TestHostilePreviews is what the author of a preview may have of its Application, and of the
// cluster.
func TestHostilePreviews(t *testing.T) {
	t.Parallel()
	w := site(t)
	preview := goldenSubjects(w)["preview"]
	text, objects := rendered(t, w, preview)
	of := func(kind string) *unstructured.Unstructured {
		t.Helper()
		i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
		require.GreaterOrEqual(t, i, 0, kind)
		return objects[i]
	}
	for name, attack := range map[string]func(*require.Assertions){
		"secrets of the Application": func(r *require.Assertions) {
			r.NotContains(text, "TOKEN")
			r.NotContains(text, "tokens")
			p := w.newPass(preview)
			made, err := p.copiedVariables(t.Context()) // it has no client: it may not ask
			r.NoError(err)
			r.Empty(made)
			r.Equal([]string{"TOKEN"}, p.withheld())
			r.Contains(p.withheldNote(), "runs without TOKEN")
			r.Contains(p.withheldNote(), "spec.previews.secrets: true")
		},
		"privileged pods": func(r *require.Assertions) {
			r.Equal("restricted", of("Namespace").GetLabels()["pod-security.kubernetes.io/enforce"])
		},
		"more than a quota": func(r *require.Assertions) {
			hard, _, err := unstructured.NestedMap(of("ResourceQuota").Object, "spec", "hard")
			r.NoError(err)
			for _, bounded := range []string{"pods", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "persistentvolumeclaims", "services.loadbalancers", "services.nodeports"} {
				r.NotEmpty(hard[bounded], bounded)
			}
		},
		"pods without limits": func(r *require.Assertions) {
			r.Equal(of("Namespace").GetName(), of("LimitRange").GetNamespace())
		},
		"rights of others": func(r *require.Assertions) {
			r.Equal(object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": PreviewRole}, of("RoleBinding").Object["roleRef"])
			r.Equal([]any{
				object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "shop-developers"}, object{"kind": "ServiceAccount", "name": "ci", "namespace": "team"},
			}, of("RoleBinding").Object["subjects"])
			r.Equal([]any{object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:team"}}, team(nil, "team"))
			for _, rule := range previewRules() {
				r.Subset([]any{"get", "list", "watch"}, rule.(object)["verbs"])
				r.NotContains(rule.(object)["resources"], "secrets")
				r.NotContains(rule.(object)["resources"], "*")
			}
		},
		"the namespace of another": func(r *require.Assertions) {
			parent := small()
			parent.Namespace = "evil"
			twin := &v1alpha1.PreviewEnvironment{}
			twin.Name, twin.Namespace, twin.UID, twin.Spec.ApplicationRef, twin.Spec.PullRequest = "x", "evil", "u", "shop", 7
			r.NotEqual(of("Namespace").GetName(), w.copyOf(twin, parent).app.Namespace)
			r.Equal(of("Namespace").GetName(), preview.app.Namespace)
		},
	} {
		t.Run(name, func(t *testing.T) {
			attack(require.New(t))
		})
	}
}

// TestHostileRights is what the operator itself could give away: a role that is not that of
// previews, or a binding of another.
func TestHostileRights(t *testing.T) {
	t.Parallel()
	for _, r := range rules() {
		rule := r.(object)
		verbs, resources := rule["verbs"].([]any), rule["resources"].([]any)
		for _, refused := range []any{"*", "escalate", "impersonate"} {
			require.NotContains(t, verbs, refused)
			require.NotContains(t, resources, refused)
		}
		if slices.Contains(verbs, any("bind")) {
			require.Equal(t, []any{PreviewRole}, rule["resourceNames"])
			require.Equal(t, []any{"bind"}, verbs)
		}
		require.NotContains(t, resources, "clusterrolebindings")
	}
}
