package agent_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/manifests"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// definitions are the kinds of Cilium that live in namespaces, without content, as
// CustomResourceDefinitions beside the definition of the policies.
func definitions() string {
	var all strings.Builder
	for _, kind := range []string{"CiliumEndpoint", "CiliumEnvoyConfig", "CiliumGatewayClassConfig", "CiliumLocalRedirectPolicy", "CiliumNodeConfig"} {
		plural := strings.TrimSuffix(strings.ToLower(kind), "y") + "s"
		if strings.HasSuffix(kind, "y") {
			plural = strings.TrimSuffix(plural, "s") + "ies"
		}
		fmt.Fprintf(&all, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.cilium.io}
spec:
  group: cilium.io
  scope: Namespaced
  names: {kind: %[2]s, plural: %[1]s, singular: %[3]s}
  versions: [{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`, plural, kind, strings.ToLower(kind))
	}
	return all.String()
}

// granted returns the rights of the manifests, each as "verb group/resource", and the
// names of the roles that give them.
func granted(tb testing.TB) (rights map[string]bool, roles []string) {
	tb.Helper()
	text, err := manifests.Manifests{Image: "krane", ControlURL: "https://control", Region: "eu"}.YAML()
	require.NoError(tb, err)
	rights = map[string]bool{}
	for _, document := range strings.Split(text, "---\n")[1:] {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []struct{ APIGroups, Resources, Verbs []string }
		}
		require.NoError(tb, yaml.Unmarshal([]byte(document), &o))
		if o.Kind == "ClusterRole" {
			roles = append(roles, o.Metadata.Name)
		}
		for _, rule := range o.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						rights[verb+" "+group+"/"+resource] = true
					}
				}
			}
		}
	}
	return rights, roles
}

// used returns the rights that a user has made use of, from the audit log of the API
// server, in the form of granted, and the requests that were forbidden. A patch that
// has created an object needed the right to create it, too.
func used(tb testing.TB, cluster *kubetest.Cluster, user string) (rights map[string]bool, forbidden []string) {
	tb.Helper()
	requests, err := cluster.Requests(user)
	require.NoError(tb, err)
	rights = map[string]bool{}
	for _, r := range requests {
		if r.Code == http.StatusForbidden {
			forbidden = append(forbidden, r.String())
		}
		if r.Resource == "" || r.Code >= http.StatusInternalServerError {
			continue // discovery, and requests that were never decided
		}
		group := ""
		if path := strings.Split(r.URI, "/"); path[1] == "apis" {
			group = path[2]
		}
		rights[r.Verb+" "+group+"/"+r.Resource] = true
		if r.Verb == "patch" && r.Code == http.StatusCreated {
			rights["create "+group+"/"+r.Resource] = true
		}
	}
	return rights, forbidden
}

// as gives the agents of the bench another account with these roles of the manifests
// and returns the name of its user.
func (b *rig) as(account string, roles ...string) string {
	b.t.Helper()
	b.kubectl("create", "serviceaccount", account, "-n", manifests.Namespace)
	for _, role := range roles {
		b.kubectl("create", "clusterrolebinding", account+"-"+role, "--clusterrole="+role, "--serviceaccount="+manifests.Namespace+":"+account)
	}
	var err error
	b.access, _, err = b.cluster.ServiceAccount(b.t.Context(), manifests.Namespace, account)
	require.NoError(b.t, err)
	return "system:serviceaccount:" + manifests.Namespace + ":" + account
}

// everyRight takes an agent with an account of its own through all that it does, and
// compares what the API server has seen with the rules of the manifests: the agent
// uses each of them and needs no other.
func everyRight(b *rig) {
	rules, roles := granted(b.t)
	user := b.as("every-right", roles...)
	b.agent.Config.Registry = config.Registry{URL: "registry.example.com", Username: "krane", Password: "secret"}
	b.agent.Periods.Relist = 500 * time.Millisecond
	b.kubectl("create", "namespace", b.name+"-theirs") // before the agent
	b.kubectl("label", "namespace", b.name+"-theirs", manifests.NamespaceLabel+"="+manifests.Account)
	var old atomic.Bool
	old.Store(true)
	web, guard, egress := b.deployment("web"), b.sentinel("guard"), b.policy("egress")
	theirs, forgotten := b.deployment("theirs"), b.policy("forgotten")
	theirs.K8SNamespace = b.name + "-theirs"
	stays := b.policy("stays")
	stays.K8SNamespace = b.name + "-theirs"
	b.want(web, guard, egress, theirs, forgotten, stays)
	listed := map[string]bool{}
	b.startWith(func(r applytest.Request) applytest.Fault {
		// The first watch of each resource is one that a server without streaming
		// lists refuses.
		if r.Verb == "watch" && old.Load() {
			return applytest.Fault{Status: http.StatusBadRequest}
		}
		return applytest.Fault{}
	})
	kinds := []string{
		"namespaces", "secrets", "serviceaccounts", "services", "replicasets", "deployments", "horizontalpodautoscalers", "poddisruptionbudgets",
		"ciliumnetworkpolicies", "pods",
	}
	await.Eventually(b.t, "everything is listed", func() bool {
		for _, r := range b.net.Requests() {
			if r.Verb == "list" {
				listed[r.Resource] = true
			}
		}
		return !slices.ContainsFunc(kinds, func(kind string) bool { return !listed[kind] })
	})
	old.Store(false)
	await.Eventually(b.t, "all of it runs", func() bool {
		return b.running("web") && b.running("theirs") && b.exists("deployment", "guard") && b.exists("ciliumnetworkpolicy", "egress")
	})
	b.byHand("DELETE FROM cilium_network_policies WHERE id = 'p_forgotten'")
	await.Eventually(b.t, "what is absent from two lists goes", func() bool { return !b.exists("ciliumnetworkpolicy", "forgotten") })

	// An apply finds that objects are deleted, though no watch has shown it, and reads them.
	b.net.Freeze()
	const owned = "secrets,serviceaccounts,replicasets,deployments,services,horizontalpodautoscalers,poddisruptionbudgets,ciliumnetworkpolicies"
	b.kubectl(
		"delete",
		owned,
		"-n",
		b.name,
		"-l",
		"app.kubernetes.io/managed-by=krane,app.kubernetes.io/component in (deployment,sentinel,policy)",
	)
	moved := func(id string) {
		web, guard, egress = b.deployment("web"), b.sentinel("guard"), b.policy("egress")
		web.ProjectId, guard.ProjectId = id, id
		egress.Policy = fmt.Appendf(
			nil,
			`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","spec":{"endpointSelector":{},"description":%q}}`,
			id,
		)
		b.want(web, guard, egress)
	}
	moved("prj_2")
	await.Eventually(b.t, "they are made again", func() bool {
		return b.exists("replicaset", "web") && b.exists("deployment", "guard") && b.exists("ciliumnetworkpolicy", "egress")
	})
	b.net.Thaw()
	await.Eventually(b.t, "it runs again", func() bool { return b.running("web") })

	// Everything in the namespace goes, and then the namespace itself.
	b.gone(web, guard, egress)
	await.Eventually(b.t, "all of it goes", func() bool {
		return b.count(owned, "-l", "app.kubernetes.io/component in (deployment,sentinel,policy)") == 0
	})
	b.agent.Periods.Namespace = 300 * time.Millisecond
	b.start()
	await.Eventually(b.t, "the empty namespace goes", func() bool {
		return b.kubectl("get", "namespace", b.name, "--ignore-not-found", "-o", "name") == ""
	})

	await.Eventually(b.t, "the audit log is written", func() bool {
		rights, _ := used(b.t, b.cluster, user)
		return rights["delete /namespaces"]
	})
	rights, forbidden := used(b.t, b.cluster, user)
	require.Empty(b.t, forbidden)
	require.Equal(b.t, slices.Sorted(maps.Keys(rules)), slices.Sorted(maps.Keys(rights)))
}

// unlistedKind is C34 with fewer rights: a namespace stays if the agent may not list
// every kind in it. One line is logged.
func unlistedKind(b *rig) {
	b.as("unlisted-kind", manifests.Account)
	b.agent.Periods.Namespace = 200 * time.Millisecond
	var log logtest.Log
	b.agent.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b.want(b.deployment("web"))
	b.start()
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	b.gone(b.deployment("web"))
	await.Eventually(b.t, "it goes", func() bool { return !b.exists("replicaset", "web") })
	await.Eventually(
		b.t,
		"the namespace is kept three times",
		func() bool { return strings.Count(log.String(), `msg="namespace kept"`) >= 3 },
		log.String,
	)
	require.Equal(b.t, "Active", b.kubectl("get", "namespace", b.name, "-o", "jsonpath={.status.phase}"))
	b.rests()
	b.stop()
	require.Equal(b.t, 1, strings.Count(log.String(), `msg="empty namespaces kept: no right to list every kind in them"`), log.String())
}

// aLabelComesBack has a person take the label away that says whose the objects are: the write policy lets the
// agent give it back, for the other label that they have, and to nothing else.
func aLabelComesBack(b *rig) {
	b.agent.Config.Registry = config.Registry{URL: "registry.example.com", Username: "krane", Password: "secret"}
	b.want(b.deployment("web"), b.sentinel("guard"))
	b.start()
	await.Eventually(b.t, "both run", func() bool { return b.running("web") && b.stored("guard").Health == "healthy" })
	const label = "app.kubernetes.io/managed-by"
	stripped := []string{
		"replicaset/web", "deployment/guard", "secret/krane-registry", "horizontalpodautoscaler/web", "service/guard", "serviceaccount/default",
	}
	for _, object := range stripped {
		b.kubectl("label", object, "-n", b.name, label+"-")
	}
	b.kubectl("label", "namespace", b.name, label+"-")
	has := func(arguments ...string) bool {
		return b.kubectl(append([]string{"get", "-o", `jsonpath={.metadata.labels.app\.kubernetes\.io/managed-by}`}, arguments...)...) == "krane"
	}
	for _, object := range stripped {
		await.Eventually(b.t, object+" has its label again", func() bool { return has(object, "-n", b.name) })
	}
	await.Eventually(b.t, "the namespace has its label again", func() bool { return has("namespace", b.name) })
	b.gone(b.deployment("web"))
	await.Eventually(b.t, "it goes", func() bool { return b.away("web") })
}
