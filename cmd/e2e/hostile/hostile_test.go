package hostile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	agentjob "github.com/seed-9e1ffd66/trueup/cmd/agentjob/operator"
)

// TestHostileTenant runs every attack on both operators. Each is a case of the table, in the
// order of its name; a case that fails is a breach.
func TestHostileTenant(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it attacks the operators for minutes")
	}
	w := newWorld(t)
	w.peace(t)
	cases := map[string]func(*tenant){}
	w.rightsOfTheOperator(t, cases)
	for _, table := range []map[string]func(*tenant){rights(), databases(), realms(), hosts(), previews(), inputs()} {
		maps.Copy(cases, table)
	}
	breaches := 0
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		if !t.Run(name, func(t *testing.T) { cases[name](w.tenant(t, "evil")) }) {
			breaches++
		}
	}
	fmt.Printf("figure hostile_cases %d count\nfigure hostile_breaches %d count\n", len(cases), breaches)
	require.Greater(t, len(cases), 60)
}

// peace makes what the tenants have before any attack.
func (w *world) peace(t *testing.T) {
	t.Helper()
	team, evil := w.tenant(t, "team"), w.tenant(t, "evil")
	team.admin("create", "secret", "generic", "production", "-n", "team", "--from-literal=token=t0p-s3cret")
	team.applies(
		team.app(
			"shop",
			"production",
			", database: {enabled: true}, auth: {enabled: true}, envVars: [{name: TOKEN, secretKeyRef: {name: production, key: token}}]",
		) + team.app(
			"web",
			"production",
			"",
		),
	)
	evil.applies(`{apiVersion: v1, kind: Secret, metadata: {name: auth, namespace: evil}, stringData: {token: t}}
---
{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: AgentRuntime, metadata: {name: runtime, namespace: evil}, spec: {image: 'agent:1', authEnvVar: AGENT_TOKEN, configPath: /etc/agent, persistPath: /data}}
---
{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: AgentAuth, metadata: {name: auth, namespace: evil}, spec: {secretRef: {name: auth, key: token}}}
---
{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: AgentRole, metadata: {name: role, namespace: evil}, spec: {allowedTools: [Read]}}
---
` + evil.app("thief", "production", ", database: {enabled: true}") + evil.app("mover", "production", ""))
	for _, app := range []string{"shop", "web"} {
		team.eventually(app+" runs", func() bool { return team.get("app", app, ".status.phase") == "Running" })
	}
	for _, app := range []string{"thief", "mover"} {
		evil.eventually(app+" runs", func() bool { return evil.get("app", app, ".status.phase") == "Running" })
	}
	team.exec(team.login("shop"), "CREATE TABLE cards (pan text); INSERT INTO cards VALUES ('4111 1111 1111 1111')")
}

// rightsOfTheOperator asks for each rule that the agent-run operator has, as the cluster has
// it, in either scope. The ceiling is empty.
func (w *world) rightsOfTheOperator(t *testing.T, cases map[string]func(*tenant)) {
	t.Helper()
	evil := w.tenant(t, "evil")
	var rules []rbacv1.PolicyRule
	for _, role := range []string{"clusterrole/" + agentjob.Account, "role/" + agentjob.Account} {
		var found rbacv1.Role
		require.NoError(t, json.Unmarshal([]byte(evil.admin("get", role, "-n", agentjob.Namespace, "-o", "json")), &found))
		rules = append(rules, found.Rules...)
	}
	require.Greater(t, len(rules), 8)
	for i, rule := range rules {
		text, err := json.Marshal([]rbacv1.PolicyRule{rule})
		require.NoError(t, err)
		for _, scope := range []string{"Cluster", "Namespace"} {
			name := fmt.Sprintf("own-%d-%s", i, strings.ToLower(scope))
			cases[fmt.Sprintf("agentjob: own rule %02d of the operator, %s: %s %s", i, scope, strings.Join(rule.Verbs, ","), strings.Join(rule.Resources, ","))] = func(n *tenant) {
				n.eventually("the ceiling is empty", func() bool {
					var ceiling rbacv1.ClusterRole
					require.NoError(n, json.Unmarshal([]byte(n.admin("get", "clusterrole", agentjob.Ceiling, "-o", "json")), &ceiling))
					return len(ceiling.Rules) == 0
				})
				n.applies(n.job(name, scope, string(text)))
				message := n.refused("aj", name, "AccessReady", "AccessDenied")
				require.Contains(n, message, "the ceiling, ClusterRole "+agentjob.Ceiling)
				require.Contains(n, message, agentjob.LabelCeiling+"=true")
				for _, verb := range rule.Verbs {
					resource := rule.Resources[0]
					if group := rule.APIGroups[0]; group != "" {
						resource += "." + group
					}
					require.False(n, n.can("system:serviceaccount:evil:"+name+"-runner", verb, resource, "evil"), "%s %s", verb, resource)
				}
				require.Empty(n, n.admin("get", "jobs", "-n", "evil", "-l", "thurkube.thurbeen.eu/agentjob="+name, "-o", "name"))
			}
		}
	}
}

// ceiling adds a rule to the ceiling, as an administrator does, and waits until it is there.
func (n *tenant) ceiling(name, rules, shows string) {
	n.Helper()
	require.NoError(
		n,
		n.cluster.Apply(
			n.Context(),
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "+name+", labels: {"+agentjob.LabelCeiling+`: "true"}}, rules: `+rules+"}",
		),
	)
	n.Cleanup(func() {
		_, err := n.cluster.Kubectl(context.WithoutCancel(n.Context()), "delete", "clusterrole", name, "--ignore-not-found")
		require.NoError(n, err)
	})
	n.eventually("the ceiling is raised", func() bool {
		return strings.Contains(n.admin("get", "clusterrole", agentjob.Ceiling, "-o", "jsonpath={.rules}"), shows)
	})
}

func rights() map[string]func(*tenant) {
	cases := map[string]func(*tenant){
		"agentjob: the ceiling is lowered": func(n *tenant) {
			n.ceiling("lowered", "[{apiGroups: [''], resources: [persistentvolumes], verbs: [list]}]", "persistentvolumes")
			n.applies(n.job("lowered", "Cluster", "[{apiGroups: [''], resources: [persistentvolumes], verbs: [list]}]"))
			account := "system:serviceaccount:evil:lowered-runner"
			n.eventually("it is granted", func() bool { return n.can(account, "list", "persistentvolumes", "evil") })
			n.eventually("its run is over", func() bool { return n.get("aj", "lowered", ".status.phase") == "Succeeded" })
			n.admin("delete", "clusterrole", "lowered")
			n.refused("aj", "lowered", "AccessReady", "AccessDenied")
			n.eventually("the right is gone", func() bool { return !n.can(account, "list", "persistentvolumes", "evil") })
		},
		"agentjob: rules grow after the grant": func(n *tenant) {
			n.ceiling("grown", "[{apiGroups: [''], resources: [componentstatuses], verbs: [list]}]", "componentstatuses")
			n.applies(n.job("grown", "Cluster", "[{apiGroups: [''], resources: [componentstatuses], verbs: [list]}]"))
			account := "system:serviceaccount:evil:grown-runner"
			n.eventually("it is granted", func() bool { return n.can(account, "list", "componentstatuses", "evil") })
			n.applies(n.job("grown", "Cluster", "[{apiGroups: [''], resources: [componentstatuses, secrets], verbs: [list]}]"))
			n.refused("aj", "grown", "AccessReady", "AccessDenied")
			require.False(n, n.can(account, "list", "secrets", "team"))
			n.eventually("what it had is gone", func() bool { return !n.can(account, "list", "componentstatuses", "evil") })
		},
		"agentjob: a namespace without the label": func(n *tenant) {
			n.admin("label", "namespace", "evil", "thurkube.thurbeen.eu/allow-cluster-access-")
			n.Cleanup(func() {
				_, err := n.cluster.Kubectl(
					context.WithoutCancel(n.Context()),
					"label",
					"namespace",
					"evil",
					"thurkube.thurbeen.eu/allow-cluster-access=true",
				)
				require.NoError(n, err)
			})
			n.ceiling("unlabelled", "[{apiGroups: [''], resources: [nodes], verbs: [list]}]", "nodes")
			n.applies(n.job("unlabelled", "Cluster", "[{apiGroups: [''], resources: [nodes], verbs: [list]}]"))
			require.Contains(n, n.refused("aj", "unlabelled", "AccessReady", "AccessDenied"), "allow-cluster-access")
		},
	}
	// The ceiling allows all of it: the fence is that rights in one namespace make no pods.
	for what, rule := range map[string]string{
		"Jobs": "{apiGroups: [batch], resources: [jobs], verbs: [create]}", "CronJobs": "{apiGroups: [batch], resources: [cronjobs], verbs: [patch]}",
		"pods": "{apiGroups: [''], resources: [pods], verbs: [create]}", "Deployments": "{apiGroups: [apps], resources: [deployments], verbs: [create]}",
		"bindings": "{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: [create]}",
		"tokens":   "{apiGroups: [''], resources: [serviceaccounts/token], verbs: [create]}", "everything": "{apiGroups: ['*'], resources: ['*'], verbs: ['*']}",
	} {
		name := "makes-" + strings.ToLower(what)
		cases["agentjob: rights in a namespace that make "+what] = func(n *tenant) {
			n.ceiling(name, "[{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]", `"*"`)
			n.applies(n.job(name, "Namespace", "["+rule+"]"))
			require.Contains(n, n.refused("aj", name, "AccessReady", "AccessDenied"), "access: Namespace may not make pods or rights")
			n.Cleanup(func() {
				_, err := n.cluster.Kubectl(context.WithoutCancel(n.Context()), "delete", "aj", name, "-n", "evil", "--timeout=60s")
				require.NoError(n, err)
			})
			account := "system:serviceaccount:evil:" + name + "-runner"
			for _, resource := range []string{"jobs.batch", "pods", "deployments.apps", "rolebindings.rbac.authorization.k8s.io"} {
				require.False(n, n.can(account, "create", resource, "evil"), resource)
			}
		}
	}
	return cases
}

func databases() map[string]func(*tenant) {
	cases := map[string]func(*tenant){
		"application: functions that the administrator might call": func(n *tenant) {
			conn := n.login("thief")
			for _, f := range []string{"obj_description(oid, text)", "shobj_description(oid, text)", "has_database_privilege(text, text)", "pg_get_userbyid(oid)"} {
				n.exec(
					conn,
					"CREATE FUNCTION public."+f+" RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'GRANT prod_shop_app TO prod_thief_app'; RETURN ''; END $$",
				)
			}
			n.applies(n.app("another", "production", ", database: {enabled: true}"))
			n.eventually("a pass is over", func() bool { return n.condition("app", "another", "DatabaseReady", "status") == "True" })
			n.admin("annotate", "app", "shop", "-n", "team", "platform.internal/rotate=1", "--overwrite")
			team := n.tenant(n.T, "team")
			team.eventually("so is one of the victim", func() bool {
				return team.get("secret", "shop-db", `.metadata.annotations.platform\.internal/rotate`) == "1"
			})
			_, err := conn.Exec(n.Context(), "SELECT pan FROM prod_shop.cards")
			require.ErrorContains(n, err, "permission denied")
		},
		"application: tables of another": func(n *tenant) {
			_, err := n.login("thief").Exec(n.Context(), "SELECT pan FROM prod_shop.cards")
			require.ErrorContains(n, err, "permission denied")
		},
		"application: a function outlives its owner with more rights": func(n *tenant) {
			n.applies(n.app("legacy", "production", ", database: {enabled: true}"))
			n.eventually("it is made", func() bool { return n.condition("app", "legacy", "DatabaseReady", "status") == "True" })
			conn := n.login("legacy")
			n.exec(
				conn,
				"CREATE FUNCTION public.raise() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN EXECUTE 'ALTER ROLE prod_thief_app SUPERUSER'; END $$",
			)
			_, err := n.try("delete", "app", "legacy", "--timeout=120s")
			require.NoError(n, err)
			require.Empty(
				n,
				n.rows(
					"SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND pg_get_userbyid(proowner) IN ('operator', 'postgres')",
				),
			)
			_, err = n.login("thief").Exec(n.Context(), "SELECT public.raise()")
			require.Error(n, err)
		},
		"application: a deletion is held for ever": func(n *tenant) {
			n.applies(n.app("hoarder", "production", ", database: {enabled: true}"))
			n.eventually("it is made", func() bool { return n.condition("app", "hoarder", "DatabaseReady", "status") == "True" })
			elsewhere, err := pgx.Connect(
				n.Context(),
				strings.Replace(strings.Split(n.databaseURL("hoarder"), "?")[0], "/platform", "/billing", 1)+"?sslmode=disable",
			)
			require.NoError(n, err)
			n.exec(elsewhere, "SELECT lo_create(0)")
			_, err = n.try("delete", "app", "hoarder", "--wait=false")
			require.NoError(n, err)
			message := n.refused("app", "hoarder", "Ready", "DeletionFailed")
			for _, part := range []string{"role prod_hoarder_app", "large object", "database billing", "DROP OWNED BY"} {
				require.Contains(n, message, part)
			}
			require.Error(n, elsewhere.Ping(n.Context()), "its session is over")
			require.Empty(n, n.rows("SELECT nspname::text FROM pg_namespace WHERE nspname = 'prod_hoarder'"))
			require.NoError(n, n.pg.SQL(n.Context(), "billing", "DROP OWNED BY prod_hoarder_app"))
			n.eventually("it ends", func() bool { return n.get("app", "hoarder", ".metadata.name") == "" })
		},
		"application: every connection of the server": func(n *tenant) {
			var err error
			for range 20 {
				var conn *pgx.Conn
				if conn, err = pgx.Connect(n.Context(), n.databaseURL("thief")); err != nil {
					break
				}
				n.Cleanup(func() { _ = conn.Close(context.WithoutCancel(n.Context())) })
			}
			require.ErrorContains(n, err, "too many connections for role")
			require.NotEmpty(n, n.rows("SELECT 'others connect'"))
		},
		"application: other databases are open, and named": func(n *tenant) {
			require.Contains(n, n.log.String(), "REVOKE CONNECT ON DATABASE")
			require.Contains(n, n.log.String(), `"billing"`)
		},
		"application: the link to the database is not encrypted": func(n *tenant) {
			require.Contains(n, n.databaseURL("thief"), "sslmode=disable", "as DB_ADMIN_URL says")
		},
		"application: the schema of another": func(n *tenant) {
			n.applies(n.app("borrower", "production", ", database: {enabled: true, schemaName: shop}"))
			n.eventually("it is refused", func() bool { return n.condition("app", "borrower", "DatabaseReady", "reason") == "OwnedByOther" })
		},
	}
	for name, spec := range map[string]string{
		"operator": "database: {enabled: true}", "postgres": "database: {enabled: true}", "prod-shop-app": "database: {enabled: true}",
		"prod-shop-anon": "database: {enabled: true}", "harmless": "database: {enabled: true, schemaName: operator}", "innocent": "database: {enabled: true, schemaName: postgres}",
	} {
		cases["application: a schema with the name of a role, by "+name] = func(n *tenant) {
			n.applies(n.app(name, "preview", ", "+spec))
			message := n.refused("app", name, "DatabaseReady", "NameReserved")
			require.Contains(n, message, "has the name of a role of the server")
			require.Empty(
				n,
				n.rows("SELECT nspname::text FROM pg_namespace WHERE nspname IN ('operator', 'postgres', 'prod_shop_app', 'prod_shop_anon')"),
			)
			require.Equal(n, "Failed", n.get("app", name, ".status.phase"))
		}
	}
	return cases
}

func realms() map[string]func(*tenant) {
	const own = "https://shop.example.com/*"
	cases := map[string]func(*tenant){
		"application: the realm of Keycloak itself": func(n *tenant) {
			n.applies(n.app("master", "production", ", auth: {enabled: true}"))
			n.refused("app", "master", "AuthReady", "OwnedByOther")
			require.Empty(n, n.redirects("master"))
		},
		"application: a preview joins the realm of another": func(n *tenant) {
			n.applies(n.app("shop", "uat", ", domain: evil.example.org, auth: {enabled: true}") + n.preview("shop-3", 3))
			n.refused("preview", "shop-3", "AuthReady", "OwnedByOther")
			require.Equal(n, []string{own}, n.redirects("shop"))
		},
	}
	for _, environment := range []string{"uat", "staging", "production"} {
		cases["application: the realm of another, as "+environment] = func(n *tenant) {
			_, err := n.try("delete", "app", "shop", "--ignore-not-found", "--timeout=120s")
			require.NoError(n, err)
			n.applies(n.app("shop", environment, ", domain: evil.example.org, auth: {enabled: true, sharedWith: [evil]}"))
			require.Contains(n, n.refused("app", "shop", "AuthReady", "OwnedByOther"), "spec.auth.sharedWith")
			require.Equal(n, []string{own}, n.redirects("shop"))
		}
	}
	return cases
}

func hosts() map[string]func(*tenant) {
	cases := map[string]func(*tenant){
		"application: a host of another, after a move": func(n *tenant) {
			require.Contains(n, n.hosts(), "mover.example.com")
			n.applies(n.app("mover", "production", ", domain: shop.example.com"))
			n.refused("app", "mover", "IngressReady", "HostTaken")
			n.eventually("it has no host", func() bool { return !slices.Contains(n.hosts(), "mover.example.com") })
			require.NotContains(n, n.hosts(), "shop.example.com")
			n.applies(n.app("mover", "production", ""))
			n.eventually("it moves back", func() bool { return slices.Contains(n.hosts(), "mover.example.com") })
		},
		"application: logins that lead to the host of another": func(n *tenant) {
			n.applies(n.app("phisher", "production", ", domain: shop.example.com, auth: {enabled: true}"))
			n.refused("app", "phisher", "IngressReady", "HostTaken")
			n.eventually("it has a realm", func() bool { return n.condition("app", "phisher", "AuthReady", "status") == "True" })
			require.Empty(n, n.redirects("phisher"))
		},
		"application: a host that is free again": func(n *tenant) {
			require.Equal(n, "shop.example.com", n.tenant(n.T, "team").get("app", "shop", ".status.host"), "it is recorded")
			n.applies(n.app("leaver", "production", ", domain: free.example.org"))
			n.eventually("the first has it", func() bool { return slices.Contains(n.hosts(), "free.example.org") })
			n.applies(n.app("waiter", "production", ", domain: free.example.org"))
			n.refused("app", "waiter", "IngressReady", "HostTaken")
			n.applies(n.app("leaver", "production", ""))
			n.eventually("the next has it", func() bool { return n.get("app", "waiter", ".status.host") == "free.example.org" })
			n.eventually("and runs", func() bool { return n.get("app", "waiter", ".status.phase") == "Running" })
		},
		"application: the host of a preview": func(n *tenant) {
			n.applies(n.app("squat", "production", ", domain: pr-9.shop.preview.example.com"))
			n.refused("app", "squat", "IngressReady", "HostNotAllowed")
			require.NotContains(n, n.hosts(), "pr-9.shop.preview.example.com")
		},
	}
	for name, c := range map[string]struct{ spec, host, reason string }{
		"web":      {"", "web.example.com", "HostTaken"},
		"hijack":   {", domain: shop.example.com", "shop.example.com", "HostTaken"},
		"services": {", domain: web.example.com, redis: {enabled: false}, storage: {enabled: true, buckets: [{name: a}]}", "web.example.com", "HostTaken"},
		"idp":      {", domain: auth.example.com", "auth.example.com", "HostNotAllowed"},
		"sub-idp":  {", domain: a.auth.example.com", "a.auth.example.com", "HostNotAllowed"},
		"other":    {", domain: auth.example.org", "auth.example.org", "HostNotAllowed"},
		"auth":     {"", "auth.example.com", "HostNotAllowed"},
		"staging":  {"", "staging.example.com", "HostNotAllowed"},
		"apex":     {", domain: example.com", "example.com", "HostNotAllowed"},
		"out":      {", domain: evil.attacker.example", "evil.attacker.example", "HostNotAllowed"},
		"suffix":   {", domain: notexample.com", "notexample.com", "HostNotAllowed"},
	} {
		cases["application: the host "+c.host+", by "+name] = func(n *tenant) {
			n.applies(n.app(name, "production", c.spec))
			message := n.refused("app", name, "IngressReady", c.reason)
			require.Contains(n, message, c.host)
			require.NotContains(n, n.hosts(), c.host)
			require.Empty(n, n.get("app", name, ".status.url"))
			n.eventually("its phase", func() bool { return n.get("app", name, ".status.phase") == "Failed" })
			require.Equal(n, "Running", n.tenant(n.T, "team").get("app", "web", ".status.phase"))
		}
	}
	return cases
}

func previews() map[string]func(*tenant) {
	// A member of the team chooses the image of a preview.
	made := func(n *tenant) (*tenant, string) {
		n.Helper()
		team := n.tenant(n.T, "team")
		team.applies(team.preview("shop-21", 21))
		team.eventually("the preview runs", func() bool { return team.get("preview", "shop-21", ".status.phase") == "Running" })
		require.Equal(n, team.copyIn(21), team.get("preview", "shop-21", ".status.namespace"))
		return team, team.copyIn(21)
	}
	return map[string]func(*tenant){
		"preview: secrets of the Application": func(n *tenant) {
			team, in := made(n)
			require.Contains(n, team.condition("preview", "shop-21", "DeploymentReady", "message"), "runs without TOKEN")
			require.NotContains(n, n.admin("get", "secrets,configmaps,pods,deployments", "-n", in, "-o", "yaml"), "TOKEN")
			require.NotContains(n, n.admin("get", "secrets", "-n", in, "-o", "yaml"), "dDBwLXMzY3JldA")
		},
		"preview: a privileged pod": func(n *tenant) {
			_, in := made(n)
			_, err := n.cluster.Kubectl(
				n.Context(),
				"run",
				"root",
				"--image=evil",
				"-n",
				in,
				`--overrides={"spec":{"hostNetwork":true,"containers":[{"name":"root","image":"evil","resources":{"limits":{"cpu":"1","memory":"1Gi"}}}]}}`,
			)
			require.ErrorContains(n, err, "PodSecurity")
		},
		"preview: more than its quota": func(n *tenant) {
			_, in := made(n)
			_, err := n.cluster.Kubectl(n.Context(), "create", "service", "loadbalancer", "out", "--tcp=80", "-n", in)
			require.ErrorContains(n, err, "exceeded quota")
			require.NotEmpty(n, n.admin("get", "limitrange", "preview", "-n", in, "-o", "name"))
		},
		"preview: strangers look": func(n *tenant) {
			_, in := made(n)
			member, stranger := "system:serviceaccount:team:ci", "system:serviceaccount:evil:ci"
			require.True(n, n.can(member, "get", "pods/log", in))
			for _, denied := range [][2]string{{"get", "secrets"}, {"create", "pods"}, {"create", "pods/exec"}} {
				require.False(n, n.can(member, denied[0], denied[1], in), denied)
			}
			require.False(n, n.can(stranger, "get", "pods", in))
			require.False(n, n.can("evil", "get", "pods", in))
		},
		"preview: the namespace of another": func(n *tenant) {
			_, err := n.try("delete", "app", "shop", "--ignore-not-found", "--timeout=120s")
			require.NoError(n, err)
			n.applies(n.app("shop", "uat", ", domain: evil.example.org") + n.preview("first", 22))
			n.eventually("the squatter is first", func() bool { return n.condition("preview", "first", "NamespaceReady", "status") == "True" })
			team := n.tenant(n.T, "team")
			team.applies(team.preview("shop-22", 22))
			team.eventually(
				"the team has its own",
				func() bool { return team.condition("preview", "shop-22", "NamespaceReady", "status") == "True" },
			)
			require.NotEqual(n, n.copyIn(22), team.copyIn(22))
		},
		"preview: the host of another, without an Application": func(n *tenant) {
			_, err := n.try("delete", "app", "shop", "--ignore-not-found", "--timeout=120s")
			require.NoError(n, err)
			n.applies(n.preview("orphan", 23))
			n.refused("preview", "orphan", "Ready", "ParentNotFound")
			team := n.tenant(n.T, "team")
			team.applies(team.preview("shop-23", 23))
			team.eventually("the team has the host", func() bool {
				return team.get("preview", "shop-23", ".status.host") == "pr-23.shop.preview.example.com"
			})
			require.Empty(n, n.get("preview", "orphan", ".status.host"))
		},
		"preview: in the namespace of another": func(n *tenant) {
			_, err := n.cluster.Kubectl(n.Context(), "create", "-n", "team", "--as=evil", "-f", "/dev/null")
			require.Error(n, err)
			require.False(n, n.can("evil", "create", "previewenvironments.platform.internal", "team"))
		},
		"application: pods of others connect": func(n *tenant) {
			team := n.tenant(n.T, "team")
			require.JSONEq(
				n,
				`[{"from":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"ingress-nginx"}}}],"ports":[{"port":3000,"protocol":"TCP"},{"port":3001,"protocol":"TCP"}]}]`,
				team.get("networkpolicy", "shop", ".spec.ingress"),
			)
		},
	}
}

// inputs are refused by admission, with the field.
func inputs() map[string]func(*tenant) {
	cases := map[string]func(*tenant){}
	for field, spec := range map[string]string{
		"spec.auth.sharedWith":         "auth: {enabled: true, sharedWith: ['*']}",
		"spec.network.from[0]":         "network: {from: [{namespace: 'a/b'}]}",
		"spec.previews.team[0]":        "previews: {team: [{kind: Group, name: g, namespace: evil}]}",
		"spec.previews.team[0].kind":   "previews: {team: [{kind: Node, name: worker}]}",
		"spec.database.schemaName":     `database: {enabled: true, schemaName: 'a"; DROP SCHEMA b'}`,
		"spec.domain":                  "domain: '*.example.com'",
		"spec.envVars[0].name":         "envVars: [{name: PGRST_DB_URI, value: x}]",
		"spec.database: Invalid value": "database: {enabled: true, schemaName: other}", // of the Application below, which has none
	} {
		cases["input: "+field] = func(n *tenant) {
			err := n.may(n.app("thief", "production", ", "+spec))
			require.ErrorContains(n, err, field)
		}
	}
	cases["input: a reference to another namespace"] = func(n *tenant) {
		err := n.may(
			"{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: AgentJob, metadata: {name: reach, namespace: evil}, spec: {runtimeRef: team/runtime, authRef: auth, roleRef: role, prompt: p}}",
		)
		require.ErrorContains(n, err, "spec.runtimeRef")
	}
	return cases
}
