package names_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/names"
)

// TestNamesAreThoseOfTheContract is the table of B6, with the hosts of B8 and B10.
func TestNamesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	app := func(environment v1alpha1.Environment, pullRequest int64) names.App {
		return names.App{Name: "my-app", Environment: environment, PullRequest: pullRequest}
	}
	for _, c := range []struct {
		app                                        names.App
		schema, role, anon, bucket, host, workload string
	}{
		{app(v1alpha1.Production, 0), "prod_my_app", "prod_my_app_app", "prod_my_app_anon", "plattr-prod-my-app-uploads", "my-app.example.com", "my-app"},
		{app(v1alpha1.Staging, 0), "staging_my_app", "staging_my_app_app", "staging_my_app_anon", "plattr-staging-my-app-uploads", "my-app.staging.example.com", "my-app"},
		{app(v1alpha1.UAT, 0), "uat_my_app", "uat_my_app_app", "uat_my_app_anon", "plattr-uat-my-app-uploads", "my-app.uat.example.com", "my-app"},
		{app(v1alpha1.Preview, 42), "my_app_pr42", "my_app_pr42_app", "my_app_pr42_anon", "plattr-preview-my-app-pr42-uploads", "pr-42.my-app.preview.example.com", "my-app-pr42"},
		{names.App{Name: "x", Schema: "own-data", Environment: v1alpha1.Production}, "prod_own_data", "prod_own_data_app", "prod_own_data_anon", "plattr-prod-x-uploads", "x.example.com", "x"},
		{names.App{Name: "pg-x", Environment: v1alpha1.Preview}, "app_pg_x", "app_pg_x_app", "app_pg_x_anon", "plattr-preview-pg-x-uploads", "pg-x.preview.example.com", "pg-x"},
		{names.App{Name: "x", Environment: v1alpha1.UAT, Domain: "x.example.org"}, "uat_x", "uat_x_app", "uat_x_anon", "plattr-uat-x-uploads", "x.example.org", "x"},
	} {
		require.Equal(t, c.schema, c.app.DatabaseSchema())
		require.Equal(t, c.role, c.app.AppRole())
		require.Equal(t, c.anon, c.app.AnonRole())
		require.Equal(t, c.bucket, c.app.Bucket("uploads"))
		require.Equal(t, c.host, c.app.HostName("example.com"))
		require.Equal(t, c.workload, c.app.Workload())
		require.Equal(t, c.workload+"-db", c.app.Secret())
		require.Equal(t, c.workload+"-api", c.app.APIIngress())
		require.Equal(t, c.app.Name, c.app.Realm())
	}
	// A copy in the namespace of another Application has another name: none takes it before.
	require.Equal(t, "preview-my-app-pr-42-615c6d92deb8", app(v1alpha1.Preview, 42).Namespace())
	require.Equal(t, "my-app-uploads", app(v1alpha1.Production, 0).LocalBucket("uploads"))
	require.Equal(t, "my-app-app", app(v1alpha1.Production, 0).LocalClient())
	require.Equal(t, "USER_FILES", names.BucketVariable("user-files"))
}

// TestAPreviewHasTheNamesOfItsPullRequestWhateverItsApplicationIs is about what a preview
// shares with its Application.
func TestAPreviewHasTheNamesOfItsPullRequestWhateverItsApplicationIs(t *testing.T) {
	t.Parallel()
	var app v1alpha1.Application
	app.Name, app.Spec.Environment, app.Spec.Database.SchemaName, app.Spec.Domain = "my-app", v1alpha1.Production, "data", "my.example.org"
	require.Equal(t, names.App{Name: "my-app", Schema: "data", Environment: v1alpha1.Production, Domain: "my.example.org"}, names.Of(&app))
	require.Equal(t, "pr-7.my-app.preview.example.com", names.OfPreview(&app, 7).HostName("example.com"))
	require.Equal(t, "data_pr7", names.OfPreview(&app, 7).DatabaseSchema())
}

// TestAmbiguousPairsHaveOneName is C13: that is what marks are for.
func TestAmbiguousPairsHaveOneName(t *testing.T) {
	t.Parallel()
	preview := names.App{Name: "prod-my-app", Environment: v1alpha1.Preview, PullRequest: 42}
	production := names.App{Name: "my-app-pr42", Environment: v1alpha1.Production}
	require.Equal(t, preview.DatabaseSchema(), production.DatabaseSchema())
	require.Equal(t, preview.AppRole(), production.AppRole())
}

// TestLongNamesAreCutAndStayDifferent changes a single character behind the cut.
func TestLongNamesAreCutAndStayDifferent(t *testing.T) {
	t.Parallel()
	long := names.App{Name: strings.Repeat("a", 63), Environment: v1alpha1.Staging}
	other := long
	other.Name = strings.Repeat("a", 62) + "b"
	require.Len(t, long.DatabaseSchema(), 63)
	require.True(t, strings.HasPrefix(long.DatabaseSchema(), "staging_aaa"))
	require.NotEqual(t, long.DatabaseSchema(), other.DatabaseSchema())
	require.NotEqual(t, long.AppRole(), long.AnonRole())
	require.NotEqual(t, long.AppRole(), long.DatabaseSchema())
	require.NotEqual(t, long.Bucket("a"), long.Bucket("b"))
	require.NotEqual(t, long.Bucket("a"), other.Bucket("a"))
	require.NotEqual(t, long.LocalBucket("a"), long.LocalBucket("b"))
}

var (
	identifier = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)
	label      = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	appName    = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	schemaName = regexp.MustCompile(`^[a-z]([a-z0-9_-]{0,61}[a-z0-9])?$`)
)

// FuzzNamesAreValid gives all names that the API server takes.
func FuzzNamesAreValid(f *testing.F) {
	f.Add("my-app", "", "uploads", uint8(0), int64(0))
	f.Add("pg-stat", "pg_x", "a", uint8(3), int64(2147483647))
	f.Add(strings.Repeat("a-", 31)+"a", strings.Repeat("b_", 31)+"b", strings.Repeat("c-", 31)+"c", uint8(1), int64(1))
	f.Fuzz(func(t *testing.T, name, schema, bucket string, environment uint8, pullRequest int64) {
		if !appName.MatchString(name) || schema != "" && !schemaName.MatchString(schema) || !label.MatchString(bucket) || pullRequest < 0 ||
			pullRequest > 1<<31-1 {
			return // the API server refuses it
		}
		app := names.App{Name: name, Schema: schema, Environment: []v1alpha1.Environment{
			v1alpha1.Production, v1alpha1.Staging, v1alpha1.UAT, v1alpha1.Preview,
		}[environment%4], PullRequest: pullRequest}
		if pullRequest != 0 {
			app.Environment = v1alpha1.Preview
		}
		for _, id := range []string{app.DatabaseSchema(), app.AppRole(), app.AnonRole()} {
			require.Regexp(t, identifier, id)
			require.False(t, strings.HasPrefix(id, "pg_"), id)
		}
		require.Regexp(t, bucketName, app.Bucket(bucket))
		require.Regexp(t, bucketName, app.LocalBucket(bucket))
		require.Regexp(t, label, app.Workload())
		require.Regexp(t, label, app.Namespace())
		for _, child := range []string{app.Secret(), app.StorageConfig(), app.AuthConfig(), app.RedisConfig(), app.SearchConfig(), app.APIIngress(), app.TLSSecret()} {
			require.LessOrEqual(t, len(child), 253)
			require.True(t, strings.HasPrefix(child, app.Workload()+"-"))
		}
		base := strings.Repeat("a.", names.Base/2-1) + "bc"
		host := app.HostName(base)
		require.LessOrEqual(t, len(host), names.Host)
		for part := range strings.SplitSeq(host, ".") {
			require.Regexp(t, label, part)
		}
	})
}
