package operator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
)

const everything = `{apiVersion: platform.internal/v1alpha1, kind: Application, metadata: {name: my-app}, spec: {repository: r, framework: nextjs, environment: staging,
	database: {enabled: true}, storage: {enabled: true, buckets: [{name: user-files, maxFileSize: 1Mi}]}, auth: {enabled: true}, redis: {enabled: true}, search: {enabled: true}}}`

// TestTheVariablesAreThoseOfTheTable is B9, and with it the parity of D29.
func TestTheVariablesAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	s := application.Settings{BaseDomain: "example.com", S3Region: "ca-central-1", Redis: "redis.internal", OpenSearch: "search.internal"}
	local, err := s.Environment([]byte(everything), application.Local)
	require.NoError(t, err)
	require.Equal(t, `AUTH_CLIENT_ID=my-app-app
AUTH_ISSUER_URL=http://127.0.0.1:8080/realms/my-app
DATABASE_URL=postgresql://plattr:localdev@127.0.0.1:5432/plattr?search_path=staging_my_app
OPENSEARCH_INDEX_PREFIX=staging_my_app_
OPENSEARCH_URL=http://127.0.0.1:9200
POSTGREST_URL=http://127.0.0.1:3001
REDIS_HOST=127.0.0.1
REDIS_PORT=6379
REDIS_URL=redis://127.0.0.1:6379
S3_BUCKET_USER_FILES=my-app-user-files
S3_ENDPOINT=http://127.0.0.1:9000
S3_MAX_FILE_SIZE_USER_FILES=1048576
S3_REGION=ca-central-1
`, local)
	remote, err := s.Environment([]byte(everything), application.Remote)
	require.NoError(t, err)
	require.Equal(t, `AUTH_CLIENT_ID=my-app
AUTH_ISSUER_URL=https://auth.example.com/realms/my-app
DATABASE_URL=postgresql://staging_my_app_app:{password}@{host}:5432/plattr?search_path=staging_my_app
OPENSEARCH_INDEX_PREFIX=staging_my_app_
OPENSEARCH_URL=https://search.internal:443
POSTGREST_INTERNAL_URL=http://localhost:3001
POSTGREST_URL=https://my-app.staging.example.com/api/rest
REDIS_HOST=redis.internal
REDIS_PORT=6379
REDIS_URL=redis://redis.internal:6379
S3_BUCKET_USER_FILES=plattr-staging-my-app-user-files
S3_MAX_FILE_SIZE_USER_FILES=1048576
S3_REGION=ca-central-1
`, remote)
}

func TestAManifestThatIsNoApplicationIsRefused(t *testing.T) {
	t.Parallel()
	var s application.Settings
	for manifest, message := range map[string]string{
		"{": "one Application of platform.internal/v1alpha1 with a name: ", "{kind: Pod, apiVersion: v1}": `it has apiVersion "v1", kind "Pod"`, "{apiVersion: platform.internal/v1alpha1, kind: Application, spec: {databse: {}}}": "databse",
	} {
		_, err := s.Environment([]byte(manifest), application.Local)
		require.ErrorContains(t, err, message)
	}
	_, err := s.Environment([]byte(everything), "cloud")
	require.ErrorContains(t, err, `--profile: is "cloud", must be local or remote`)
}
