package operator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// TestHostilePreviewHosts is about hosts of previews, which two tenants want that have
// Applications of one name. The operator has no services: a host needs none.
func TestHostilePreviewHosts(t *testing.T) {
	t.Parallel()
	c := &cell{
		kinds: new([]schema.GroupVersionResource), alone: true, cluster: kubetest.Start(t, kubetest.Options{Controllers: true}),
		settings: application.Settings{
			BaseDomain: "example.com", S3Region: "ca-central-1", ReservedHosts: []string{"pr-6.reserved.preview.example.com"},
		},
	}
	text, err := application.Manifests{Image: "application", BaseDomain: "example.com"}.YAML()
	require.NoError(t, err)
	require.NoError(t, c.cluster.Apply(t.Context(), text))
	_, err = c.cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=300s", "crd", "--all")
	require.NoError(t, err)
	c.access, _, err = c.cluster.ServiceAccount(t.Context(), application.Namespace, application.Account)
	require.NoError(t, err)
	r, whole := c.start(t), t // an operator outlives the attack that has started it
	for name, attack := range map[string]func(*rivals){
		"first":    firstHasTheHost,
		"orphan":   orphanHasNoClaim,
		"hanging":  hangingParentGivesNoClaim,
		"free":     freedHostGoesToTheNext,
		"reserved": reservedHostOfAPreview,
		"kept":     hostOutlivesItsApplication,
	} {
		t.Run(name, func(t *testing.T) {
			attack(&rivals{T: t, app: name, team: c.bench(t, "team-"+name), evil: c.bench(t, "evil-"+name), again: func() {
				r.stop()
				r = c.start(whole)
			}})
		})
	}
}

// rivals are two tenants.
type rivals struct {
	*testing.T

	app        string // the name of their Applications
	team, evil *bench
	again      func() // starts another process of the operator
}

const pullRequest = 6

func (r *rivals) host() string {
	return fmt.Sprintf("pr-%d.%s.preview.example.com", pullRequest, r.app)
}

// makes makes the Application of a tenant. A preview whose Application the operator does not see yet
// has none for this moment.
func (r *rivals) makes(b *bench) {
	r.Helper()
	b.app(r.app, "")
	b.eventually("it is seen", func() bool { return b.get("app", r.app, ".status.phase") != "" })
}

// wants makes a preview of a tenant. The second of two is younger, as its server sees it.
func (r *rivals) wants(b *bench) {
	r.Helper()
	b.preview("mine-"+r.app, r.app, pullRequest, ", imageRef: 'app:1'")
	time.Sleep(1100 * time.Millisecond) // the times of creation have no fractions
}

// decided waits until the operator has said whether a tenant has the host, and returns the
// host, or else the reason.
func (r *rivals) decided(b *bench) (outcome string) {
	r.Helper()
	b.eventually("the host is decided", func() bool {
		outcome = b.get("preview", "mine-"+r.app, ".status.host")
		for _, kind := range []string{"IngressReady", "Ready"} {
			switch reason := b.previewCondition("mine-"+r.app, kind, "reason"); reason {
			case "HostTaken", "HostNotAllowed", "ParentNotFound":
				outcome = reason
			}
		}
		return outcome != ""
	})
	return outcome
}

// leads returns the hosts that Ingresses of a tenant's preview lead to.
func (r *rivals) leads(b *bench) string {
	r.Helper()
	return b.beside(b.copyIn(r.app, pullRequest)).in("get", "ingress", "-o", "jsonpath={.items[*].spec.rules[*].host}")
}

func firstHasTheHost(r *rivals) {
	for _, b := range []*bench{r.team, r.evil} {
		r.makes(b)
		r.wants(b)
		if b == r.team {
			require.Equal(r, r.host(), r.decided(b))
		}
	}
	require.Equal(r, "HostTaken", r.decided(r.evil))
	r.again()
	r.evil.in("annotate", "preview", "mine-"+r.app, "example.com/look=1")
	require.Equal(r, "HostTaken", r.decided(r.evil))
	require.Equal(r, r.host(), r.decided(r.team))
	require.Empty(r, r.evil.get("preview", "mine-"+r.app, ".status.host"))
	require.Empty(r, r.evil.get("preview", "mine-"+r.app, ".status.url"))
	require.NotContains(r, r.leads(r.evil), r.host())
	require.NotContains(r, r.evil.get("preview", "mine-"+r.app, ".status"), r.team.name)
	require.Contains(r, r.evil.previewCondition("mine-"+r.app, "IngressReady", "message"), r.host())
}

// orphanHasNoClaim has a preview whose Application does not exist. Its tenant has only to
// guess a number.
func orphanHasNoClaim(r *rivals) {
	r.wants(r.evil)
	require.Equal(r, "ParentNotFound", r.decided(r.evil))
	r.makes(r.team)
	r.wants(r.team)
	require.Equal(r, r.host(), r.decided(r.team))
	require.Empty(r, r.evil.get("preview", "mine-"+r.app, ".status.host"))
}

// hangingParentGivesNoClaim has one whose Application is being deleted, and never goes: its
// tenant may add a finalizer.
func hangingParentGivesNoClaim(r *rivals) {
	r.makes(r.evil)
	r.evil.in("patch", "app", r.app, "--type=json", "-p", `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/hold"}]`)
	r.evil.in("delete", "app", r.app, "--wait=false")
	r.evil.eventually("its deletion is seen", func() bool {
		return r.evil.get("app", r.app, ".metadata.finalizers") == `["example.com/hold"]`
	})
	r.wants(r.evil)
	require.Equal(r, "ParentNotFound", r.decided(r.evil))
	r.makes(r.team)
	r.wants(r.team)
	require.Equal(r, r.host(), r.decided(r.team))
	r.evil.in("patch", "app", r.app, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

// freedHostGoesToTheNext is what the second gets when the first ends.
func freedHostGoesToTheNext(r *rivals) {
	for _, b := range []*bench{r.team, r.evil} {
		r.makes(b)
		r.wants(b)
		r.decided(b)
	}
	require.Equal(r, "HostTaken", r.decided(r.evil))
	r.team.in("delete", "preview", "mine-"+r.app, "--timeout=240s")
	await.Until(r, 30*time.Second, "the next has the host", func() bool {
		return r.evil.get("preview", "mine-"+r.app, ".status.host") == r.host() && strings.Contains(r.leads(r.evil), r.host())
	})
}

// reservedHostOfAPreview is a host that the platform uses itself, below the domain of previews.
func reservedHostOfAPreview(r *rivals) {
	r.makes(r.evil)
	r.wants(r.evil)
	require.Equal(r, "HostNotAllowed", r.decided(r.evil))
	require.NotContains(r, r.leads(r.evil), r.host())
	require.Contains(r, r.evil.previewCondition("mine-"+r.app, "IngressReady", "message"), "spec.applicationRef: the host "+r.host())
}

// hostOutlivesItsApplication: a preview goes on without its Application, and so does its host,
// also for an operator that has just started.
func hostOutlivesItsApplication(r *rivals) {
	r.makes(r.team)
	r.wants(r.team)
	require.Equal(r, r.host(), r.decided(r.team))
	r.team.in("delete", "app", r.app, "--timeout=120s")
	r.team.eventually("its Application is missing", func() bool {
		return r.team.previewCondition("mine-"+r.app, "Ready", "reason") == "ParentNotFound"
	})
	r.again()
	r.makes(r.evil)
	r.wants(r.evil)
	require.Equal(r, "HostTaken", r.decided(r.evil))
	require.Equal(r, r.host(), r.leads(r.team))
}
