package operator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/names"
)

// Profile is where an app runs.
type Profile string

// The profiles.
const (
	// Local is a developer's machine with the services on their usual ports.
	Local Profile = "local"
	// Remote is the cluster.
	Remote Profile = "remote"
)

// ErrNoApplication is a text that has no Application of this version.
var ErrNoApplication = errors.New("one Application of " + v1alpha1.GroupVersion().String() + " with a name")

// Environment returns the variables of an app as lines NAME=value in the order of the
// names: the variables of the services that the Application has turned on. They come from the
// code that the operator uses. A password that exists only in the cluster is {password}, a
// host of the database {host}.
func (s Settings) Environment(manifest []byte, profile Profile) (string, error) {
	var app v1alpha1.Application
	if err := yaml.UnmarshalStrict(manifest, &app); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoApplication, err)
	}
	if app.Kind != "Application" || app.APIVersion != v1alpha1.GroupVersion().String() || app.Name == "" {
		return "", fmt.Errorf("%w: it has apiVersion %q, kind %q, name %q", ErrNoApplication, app.APIVersion, app.Kind, app.Name)
	}
	var variables map[string]string
	switch profile {
	case Local:
		variables = s.local(&app)
	case Remote:
		variables = s.remote(&app)
	default:
		return "", fmt.Errorf("--profile: is %q, must be %s or %s", profile, Local, Remote)
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		lines.WriteString(name + "=" + variables[name] + "\n")
	}
	return lines.String(), nil
}

func (s Settings) remote(app *v1alpha1.Application) map[string]string {
	n, all, spec := names.Of(app), map[string]string{}, &app.Spec
	if spec.Database.Enabled {
		all["DATABASE_URL"] = "postgresql://" + n.AppRole() + ":{password}@{host}:5432/plattr?search_path=" + n.DatabaseSchema()
		maps.Copy(all, postgrestVariables(n.HostName(s.BaseDomain)))
	}
	if spec.Storage.Enabled {
		maps.Copy(all, s.storageVariables(app, n))
	}
	if spec.Auth.Enabled {
		maps.Copy(all, s.authVariables(n))
	}
	if spec.Redis.Enabled {
		maps.Copy(all, s.redisVariables())
	}
	if spec.Search.Enabled {
		maps.Copy(all, s.searchVariables(n))
	}
	return all
}

// local returns the same names with what runs on a developer's machine.
func (s Settings) local(app *v1alpha1.Application) map[string]string {
	n, spec := names.Of(app), &app.Spec
	here := s
	here.S3Endpoint, here.Redis = "http://127.0.0.1:9000", "127.0.0.1"
	all := here.remote(app)
	if spec.Database.Enabled {
		all["DATABASE_URL"] = "postgresql://plattr:localdev@127.0.0.1:5432/plattr?search_path=" + n.DatabaseSchema()
		all["POSTGREST_URL"] = "http://127.0.0.1:3001"
		delete(all, "POSTGREST_INTERNAL_URL")
	}
	if spec.Storage.Enabled {
		for _, bucket := range spec.Storage.Buckets {
			all["S3_BUCKET_"+names.BucketVariable(bucket.Name)] = n.LocalBucket(bucket.Name)
		}
	}
	if spec.Auth.Enabled {
		all["AUTH_ISSUER_URL"], all["AUTH_CLIENT_ID"] = "http://127.0.0.1:8080/realms/"+n.Realm(), n.LocalClient()
	}
	if spec.Search.Enabled {
		all["OPENSEARCH_URL"] = "http://127.0.0.1:9200"
	}
	return all
}
