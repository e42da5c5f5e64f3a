package operator

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/auth"
)

// authPart is a realm with a client, and the ConfigMap with what the app needs of them.
func (p *pass) authPart() *part {
	spec, n := &p.subject.app.Spec.Auth, p.subject.names
	t := &part{
		name: "auth", condition: v1alpha1.ConditionAuth, enabled: spec.Enabled, gate: p.op.gates.auth,
		kinds: []v1alpha1.ExternalKind{v1alpha1.KindRealm, v1alpha1.KindClient},
		external: []v1alpha1.External{
			{Kind: v1alpha1.KindRealm, ID: n.Realm(), Policy: spec.DeletionPolicy},
			{Kind: v1alpha1.KindClient, ID: n.Client(), Policy: spec.DeletionPolicy},
		},
		child: apply.ID{Kind: "ConfigMap", Namespace: p.subject.app.Namespace, Name: n.AuthConfig()},
		configs: func(context.Context) ([]*unstructured.Unstructured, error) {
			return []*unstructured.Unstructured{p.config(n.AuthConfig(), p.op.settings.authVariables(n))}, nil
		},
	}
	origin := "https://" + p.host()
	want := auth.Want{
		Realm: n.Realm(), Client: n.Client(), Share: n.Share(),
		Redirects: []string{origin + "/*"}, Origins: []string{origin}, Mark: p.subject.mark,
	}
	for _, namespace := range spec.SharedWith {
		want.SharedWith = append(want.SharedWith, string(namespace))
	}
	for _, provider := range spec.Providers {
		want.Providers = append(want.Providers, string(provider))
	}
	server := p.op.auth
	if server == nil {
		t.unset = unset("auth", "KEYCLOAK_ADMIN_URL")
	}
	t.apply = func(ctx context.Context) error {
		if t.unset != nil {
			return t.unset
		}
		with := want
		if p.hostErr != nil {
			with.Redirects, with.Origins = nil, nil // logins lead to no host of another
		}
		result, err := server.Apply(ctx, with)
		if len(result.Missing) > 0 {
			t.note = "these providers are not set up in realm " + n.Realm() + ": " + strings.Join(result.Missing, ", ") + "; add them in Keycloak"
		}
		return err
	}
	t.delete = func(ctx context.Context, e v1alpha1.External) error {
		// The client goes with the realm, or with its last redirect URI.
		if e.Kind != v1alpha1.KindRealm {
			return nil
		}
		if t.unset != nil {
			return t.unset
		}
		_, err := server.Delete(ctx, want, e.Policy == v1alpha1.Retain)
		return err
	}
	return t
}
