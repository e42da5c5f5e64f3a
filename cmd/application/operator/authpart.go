package operator

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/auth"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// authPart is a realm with a client, and the ConfigMap with what the app needs of them.
func (p *pass) authPart() *part {
	spec, n := &p.subject.app.Spec.Auth, p.subject.names
	t := &part{
		outside: outside.Part{
			Name: "auth", Wanted: spec.Enabled, Gate: p.op.gates.auth,
			Kinds: []string{string(v1alpha1.KindRealm), string(v1alpha1.KindClient)},
			Things: things(
				v1alpha1.External{Kind: v1alpha1.KindRealm, ID: n.Realm(), Policy: spec.DeletionPolicy},
				v1alpha1.External{Kind: v1alpha1.KindClient, ID: n.Client(), Policy: spec.DeletionPolicy},
			),
		},
		condition: v1alpha1.ConditionAuth,
		child:     apply.ID{Kind: "ConfigMap", Namespace: p.subject.app.Namespace, Name: n.AuthConfig()},
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
		t.outside.Unset = unset("auth", "KEYCLOAK_ADMIN_URL")
	}
	t.outside.Make = func(ctx context.Context) error {
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
	t.outside.Delete = func(ctx context.Context, e outside.Thing) error {
		// The client goes with the realm, or with its last redirect URI.
		if e.Kind != string(v1alpha1.KindRealm) {
			return nil
		}
		if t.outside.Unset != nil {
			return t.outside.Unset
		}
		_, err := server.Delete(ctx, want, retained(e))
		return err
	}
	return t
}
