package operator

import (
	"cmp"
	"maps"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/database"
)

// defaultPath is the default of spec.database.migrations.path.
const defaultPath = "./migrations"

// withoutEffect names settings that do nothing, and variables of a service that the app's own
// hide.
func (p *pass) withoutEffect() (notes []string) {
	spec := &p.subject.app.Spec
	migrations := &spec.Database.Migrations
	for _, setting := range []struct {
		path, needs string
		idle        bool
	}{
		{"spec.storage.buckets", "spec.storage.enabled", !spec.Storage.Enabled && len(spec.Storage.Buckets) > 0},
		{"spec.storage.roleArn", "spec.storage.enabled", !spec.Storage.Enabled && spec.Storage.RoleARN != ""},
		{"spec.database.schemaName", "spec.database.enabled", !spec.Database.Enabled && spec.Database.SchemaName != ""},
		{"spec.database.anonRead", "spec.database.enabled", !spec.Database.Enabled && !spec.Database.AnonRead},
		{"spec.database.migrations.path", "spec.database.enabled", !spec.Database.Enabled && cmp.Or(migrations.Path, defaultPath) != defaultPath},
		{"spec.database.migrations.engine", "spec.database.enabled", !spec.Database.Enabled && migrations.Engine != ""},
		{"spec.database.migrations.command", "spec.database.enabled", !spec.Database.Enabled && len(migrations.Command) > 0},
		{"spec.auth.providers", "spec.auth.enabled", !spec.Auth.Enabled && len(spec.Auth.Providers) > 0},
		{"spec.auth.sharedWith", "spec.auth.enabled", !spec.Auth.Enabled && len(spec.Auth.SharedWith) > 0},
	} {
		if setting.idle {
			notes = append(notes, setting.path+" has no effect while "+setting.needs+" is false")
		}
	}
	if !spec.Storage.Enabled && !spec.Auth.Enabled && len(spec.CORS.Origins) > 0 {
		notes = append(notes, "spec.cors.origins has no effect while spec.storage.enabled and spec.auth.enabled are false")
	}
	if spec.Database.Enabled && migrations.Engine == v1alpha1.Raw && len(migrations.Command) == 0 { // it was stored before this was refused
		notes = append(notes, "spec.database.migrations.engine has no effect without spec.database.migrations.command: "+
			"nothing says what runs plain SQL")
	}
	if p.subject.home != nil && len(spec.ImagePullSecrets) > 0 {
		notes = append(notes, "spec.imagePullSecrets of the Application has no effect in a preview: its namespace does not have them")
	}
	given := p.op.settings.remote(p.subject.app)
	if server := p.op.database; server != nil && spec.Database.Enabled {
		maps.Copy(given, databaseVariables(p.subject.app, server, database.Want{})) // their names count
	}
	for _, v := range spec.EnvVars {
		if _, ok := given[v.Name]; ok {
			notes = append(notes, "spec.envVars: "+v.Name+" takes the place of the operator's")
		}
	}
	return notes
}
