package operator_test

import (
	"net/http"

	"github.com/stretchr/testify/require"
)

// realm returns what a realm answers to those who log in; 404 without one.
func (b *bench) realm(name string) int {
	b.Helper()
	request, err := http.NewRequestWithContext(
		b.Context(),
		http.MethodGet,
		b.settings.KeycloakURL+"/realms/"+name+"/.well-known/openid-configuration",
		http.NoBody,
	)
	require.NoError(b, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(b, err)
	require.NoError(b, answer.Body.Close())
	return answer.StatusCode
}

// realms is D1, D13, D20 and C12, as far as the operator itself decides.
func realms(b *bench) {
	b.app("realms", ", imageRef: 'app:1', auth: {enabled: true, providers: [google]}")
	b.phase("realms", "Running")
	require.Equal(b, http.StatusOK, b.realm("realms"))
	require.JSONEq(
		b,
		`{"AUTH_ISSUER_URL":"https://auth.example.com/realms/realms","AUTH_CLIENT_ID":"realms"}`,
		b.get("cm", "realms-auth", ".data"),
	)
	require.Equal(b, "True", b.condition("realms", "AuthReady", "status"))
	require.Contains(b, b.condition("realms", "AuthReady", "message"), "google")
	require.JSONEq(
		b,
		`[{"kind":"Realm","id":"realms","policy":"Delete","made":true},{"kind":"Client","id":"realms","policy":"Delete","made":true}]`,
		b.get("app", "realms", ".status.external"),
	)

	// Another environment of another namespace shares the realm where the owner lists that
	// namespace, and leaves it to the first. Any other is refused, and reads nothing about
	// the owner.
	for namespace, environment := range map[string]string{b.name + "-staging": "staging", b.name + "-twin": "production"} {
		_, err := b.cluster.Kubectl(b.Context(), "create", "namespace", namespace)
		require.NoError(b, err)
		require.NoError(
			b,
			b.cluster.Apply(
				b.Context(),
				"{apiVersion: platform.internal/v1alpha1, kind: Application, metadata: {name: realms, namespace: "+namespace+"}, spec: {repository: r, framework: rails, environment: "+environment+", imageRef: 'app:1', auth: {enabled: true}}}",
			),
		)
	}
	staging, twin := *b, *b
	staging.name, twin.name = b.name+"-staging", b.name+"-twin"
	for _, other := range []*bench{&twin, &staging} {
		other.eventually("it is refused", func() bool { return other.condition("realms", "AuthReady", "reason") == "OwnedByOther" })
		message := other.condition("realms", "AuthReady", "message")
		require.NotContains(b, message, b.name+"/realms")
		require.Contains(b, message, "ask its owner to list namespace "+other.name+" in spec.auth.sharedWith")
	}
	b.in("patch", "app", "realms", "--type=merge", "-p", `{"spec":{"auth":{"sharedWith":["`+staging.name+`"]}}}`)
	staging.phase("realms", "Running")
	for _, other := range []*bench{&twin, &staging} {
		other.in("delete", "app", "realms", "--timeout=120s")
		require.Equal(b, http.StatusOK, b.realm("realms"))
	}
	b.in("delete", "app", "realms", "--timeout=120s")
	require.Equal(b, http.StatusNotFound, b.realm("realms"))
}
