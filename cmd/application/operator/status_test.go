package operator //nolint:testpackage // a pass is given what it has seen

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
)

// said is the phase, and the conditions of the workload and of all.
func said(p *pass) string {
	var s v1alpha1.ApplicationStatus
	deployment, ingress := p.fillWorkload(&s)
	p.fillReady(&s, deployment, ingress)
	var text strings.Builder
	text.WriteString(string(s.Phase))
	for _, kind := range []string{v1alpha1.ConditionDeployment, v1alpha1.ConditionIngress, v1alpha1.ConditionReady} {
		c := meta.FindStatusCondition(s.Conditions, kind)
		fmt.Fprintf(&text, "; %s %s", c.Type, c.Reason)
		if kind == v1alpha1.ConditionReady && c.Message != "" {
			text.WriteString(": " + c.Message)
		}
	}
	return text.String()
}

// TestTheStatusSaysWhyAWorkloadDoesNotStart: a usual step of a start is no reason of its own.
func TestTheStatusSaysWhyAWorkloadDoesNotStart(t *testing.T) {
	t.Parallel()
	w := site(t)
	const slow = "Deployment shop: 1 of 2"
	for name, c := range map[string]struct {
		status readiness.Status
		cause  readiness.Cause
		err    error
		want   string
	}{
		"it runs": {status: readiness.Current, want: "Running; DeploymentReady Reconciled; IngressReady Reconciled; Ready Reconciled"},
		"slow": {
			status: readiness.InProgress,
			want:   "Provisioning; DeploymentReady Progressing; IngressReady Reconciled; Ready Progressing: " + slow,
		},
		"it starts": {
			status: readiness.InProgress,
			cause:  readiness.Cause{Reason: readiness.ContainerCreating, Outlook: readiness.Waiting, Message: "volumes"},
			want: "Provisioning; DeploymentReady Progressing; IngressReady Reconciled; Ready Progressing: " +
				slow + "; ContainerCreating: volumes",
		},
		"a quota": {
			status: readiness.InProgress, cause: readiness.Cause{Reason: readiness.Quota, Outlook: readiness.Transient, Message: "few"},
			want: "Provisioning; DeploymentReady Quota; IngressReady Reconciled; Ready Quota: " + slow + "; Quota: few",
		},
		"past its deadline": {
			status: readiness.Failed, cause: readiness.Cause{Reason: readiness.Unschedulable, Outlook: readiness.Lasting, Message: "no node"},
			want: "Failed; DeploymentReady Unschedulable; IngressReady Reconciled; Ready Unschedulable: " + slow + "; Unschedulable: no node",
		},
		"refused": {
			status: readiness.InProgress, cause: readiness.Cause{Reason: readiness.Quota, Outlook: readiness.Transient, Message: "few"},
			err:  errors.New("no right"),
			want: "Failed; DeploymentReady ApplyFailed; IngressReady ApplyFailed; Ready ApplyFailed: no right",
		},
	} {
		p := w.newPass(w.application(small()))
		ingress := apply.ID{Group: "networking.k8s.io", Kind: "Ingress", Namespace: "team", Name: "shop"}
		p.ready = map[apply.ID]readiness.Result{
			p.deploymentID(): {Status: c.status, Message: "1 of 2"}, ingress: {Status: readiness.Current},
		}
		p.cause, p.workErr = c.cause, c.err
		require.Equal(t, c.want, said(p), name)
	}
}

// TestSettingsWithoutEffectAreNamed: each of them, and none that has one.
func TestSettingsWithoutEffectAreNamed(t *testing.T) {
	t.Parallel()
	w := site(t)
	notes := func(set, enable func(*v1alpha1.ApplicationSpec)) []string {
		app := small()
		set(&app.Spec)
		enable(&app.Spec)
		return w.newPass(w.application(app)).withoutEffect()
	}
	type change = func(*v1alpha1.ApplicationSpec)
	database := func(s *v1alpha1.ApplicationSpec) { s.Database.Enabled = true }
	storage := func(s *v1alpha1.ApplicationSpec) { s.Storage.Enabled = true }
	auth := func(s *v1alpha1.ApplicationSpec) { s.Auth.Enabled = true }
	nothing := func(*v1alpha1.ApplicationSpec) {}
	for name, c := range map[string]struct {
		set, enable change
		needs       string
	}{
		"spec.storage.buckets": {
			func(s *v1alpha1.ApplicationSpec) { s.Storage.Buckets = []v1alpha1.Bucket{{Name: "a"}} }, storage, "storage",
		},
		"spec.storage.roleArn":            {func(s *v1alpha1.ApplicationSpec) { s.Storage.RoleARN = "arn:a" }, storage, "storage"},
		"spec.database.schemaName":        {func(s *v1alpha1.ApplicationSpec) { s.Database.SchemaName = "a" }, database, "database"},
		"spec.database.migrations.engine": {func(s *v1alpha1.ApplicationSpec) { s.Database.Migrations.Engine = "prisma" }, database, "database"},
		"spec.database.anonRead":          {func(s *v1alpha1.ApplicationSpec) { s.Database.AnonRead = false }, database, "database"},
		"spec.database.migrations.path":   {func(s *v1alpha1.ApplicationSpec) { s.Database.Migrations.Path = "db" }, database, "database"},
		"spec.database.migrations.command": {
			func(s *v1alpha1.ApplicationSpec) { s.Database.Migrations.Command = []string{"migrate"} }, database, "database",
		},
		"spec.auth.providers": {
			func(s *v1alpha1.ApplicationSpec) { s.Auth.Providers = []v1alpha1.AuthProvider{"github"} }, auth, "auth",
		},
		"spec.auth.sharedWith": {func(s *v1alpha1.ApplicationSpec) { s.Auth.SharedWith = []v1alpha1.Namespace{"a"} }, auth, "auth"},
	} {
		require.Equal(t, []string{name + " has no effect while spec." + c.needs + ".enabled is false"}, notes(c.set, nothing))
		require.Empty(t, notes(c.set, c.enable), name)
		require.Empty(t, notes(nothing, c.enable), name)
	}
	origins := func(s *v1alpha1.ApplicationSpec) { s.CORS.Origins = []v1alpha1.Origin{"https://a.example.com"} }
	without := "spec.cors.origins has no effect while spec.storage.enabled and spec.auth.enabled are false"
	require.Equal(t, []string{without}, notes(origins, nothing))
	require.Empty(t, notes(origins, storage))
	require.Empty(t, notes(origins, auth))
	raw := func(s *v1alpha1.ApplicationSpec) { s.Database.Migrations.Engine = v1alpha1.Raw }
	require.Equal(t, []string{
		"spec.database.migrations.engine has no effect without spec.database.migrations.command: nothing says what runs plain SQL",
	}, notes(raw, database))
	require.Empty(t, notes(raw, func(s *v1alpha1.ApplicationSpec) {
		s.Database.Enabled, s.Database.Migrations.Command = true, []string{"migrate"}
	}))
	app := small()
	app.Spec.ImagePullSecrets = []v1alpha1.ImagePullSecret{{Name: "registry"}}
	require.Empty(t, w.newPass(w.application(app)).withoutEffect())
	preview := &v1alpha1.PreviewEnvironment{Spec: v1alpha1.PreviewEnvironmentSpec{ApplicationRef: "shop", PullRequest: 7}}
	require.Equal(t, []string{"spec.imagePullSecrets of the Application has no effect in a preview: its namespace does not have them"},
		w.newPass(w.copyOf(preview, app)).withoutEffect())
	hides := func(s *v1alpha1.ApplicationSpec) {
		for _, name := range []string{"DATABASE_URL", "DB_HOST", "DB_PASSWORD", "DB_MIGRATIONS_ENGINE", "OTHER"} {
			s.EnvVars = append(s.EnvVars, v1alpha1.EnvVar{Name: name, Value: "mine"})
		}
	}
	require.Empty(t, notes(hides, nothing))
	require.Equal(t, []string{
		"spec.envVars: DATABASE_URL takes the place of the operator's", "spec.envVars: DB_HOST takes the place of the operator's",
		"spec.envVars: DB_PASSWORD takes the place of the operator's",
	}, notes(hides, database))
}
