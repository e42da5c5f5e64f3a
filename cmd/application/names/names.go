// Package names makes all names of what an application has inside and outside of the
// cluster, in one place: the code that makes, uses and removes a thing calls the same
// function for its name.
//
// A name is readable as far as its limit allows. One that would be longer is cut, and
// ends in a digest of the whole. Names of different applications may be the same (app
// prod-my-app with pull request 42, and app my-app-pr42 in production): the marks of what
// exists decide then, never the name.
package names

//trueup:pure

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
)

// Limits of names, in bytes.
const (
	// Identifier is the limit of PostgreSQL, BucketName the limit of S3.
	Identifier = 63
	BucketName = 63
	// Label is the limit of a part of a host, of a Service and of a Namespace.
	Label = 63
	// Host is the limit of a whole host name.
	Host = 253
	// Base is the limit of a base domain: below it, every host fits.
	Base = 253 - (3 + 10 + 1 + Label + len(".preview."))
)

// digest is how many hexadecimal digits a name ends in that was cut: 48 bits.
const digest = 12

// App is an application, or the copy of one for a pull request. The zero value of a field
// is none.
type App struct {
	// Name of the Application. Required.
	Name string
	// Schema stands in the place of the name in names of the database.
	Schema string
	// Environment of the Application. Required. A copy for a pull request is
	// [v1alpha1.Preview], whatever its Application is.
	Environment v1alpha1.Environment
	// PullRequest is the number of the pull request that this is a copy for.
	PullRequest int64
	// Domain replaces the host.
	Domain string
	// Home is the namespace of the Application that a copy is of.
	Home string
}

// Of returns the names of an Application.
func Of(app *v1alpha1.Application) App {
	return App{Name: app.Name, Schema: app.Spec.Database.SchemaName, Environment: app.Spec.Environment, Domain: app.Spec.Domain}
}

// OfPreview returns the names of the copy of an Application for a pull request. They hold
// nothing else of the Application than its name, its namespace and the name of its schema.
func OfPreview(app *v1alpha1.Application, pullRequest int64) App {
	return App{
		Name:        app.Name,
		Schema:      app.Spec.Database.SchemaName,
		Environment: v1alpha1.Preview,
		PullRequest: pullRequest,
		Home:        app.Namespace,
	}
}

// short is an environment as the names of databases and buckets have it.
func (a App) short() string {
	if a.Environment == v1alpha1.Production {
		return "prod"
	}
	return string(a.Environment)
}

// Workload returns the name of the Deployment, the Service and the ServiceAccount. The names
// of all other children begin with it.
func (a App) Workload() string { return cut(Label, "-", a.suffixed(a.Name)) }

// child returns the name of a child that is no Service.
func (a App) child(suffix string) string { return cut(Host, "-", a.Workload()+"-"+suffix) }

// The names of the children.

// Secret returns the name of the Secret of the database.
func (a App) Secret() string { return a.child("db") }

// StorageConfig returns the name of the ConfigMap of the buckets.
func (a App) StorageConfig() string { return a.child("storage") }

// AuthConfig returns the name of the ConfigMap of the realm.
func (a App) AuthConfig() string { return a.child("auth") }

// Variables returns the name of the Secret with the variables that a copy takes over from
// Secrets of its Application.
func (a App) Variables() string { return a.child("env") }

// RedisConfig returns the name of the ConfigMap of Redis.
func (a App) RedisConfig() string { return a.child("redis") }

// SearchConfig returns the name of the ConfigMap of OpenSearch.
func (a App) SearchConfig() string { return a.child("search") }

// APIIngress returns the name of the Ingress of PostgREST.
func (a App) APIIngress() string { return a.child("api") }

// Migration returns the name of a Job that runs migrations, whose digest distinguishes it.
func (a App) Migration(digest string) string { return cut(Label, "-", a.Workload()+"-migrate-"+digest) }

// TLSSecret returns the name of the Secret of the certificate.
func (a App) TLSSecret() string { return a.child("tls") }

// suffixed returns the name of a copy for a pull request, or the name itself.
func (a App) suffixed(name string) string {
	if a.PullRequest == 0 {
		return name
	}
	return name + "-pr" + strconv.FormatInt(a.PullRequest, 10)
}

// DatabaseSchema returns the name of the schema: a-z, 0-9 and _, beginning with a letter.
func (a App) DatabaseSchema() string { return cut(Identifier, "_", a.schema()) }

// AppRole returns the name of the role that the app logs in with.
func (a App) AppRole() string { return AppRole(a.DatabaseSchema()) }

// AnonRole returns the name of the role of anonymous readers.
func (a App) AnonRole() string { return AnonRole(a.DatabaseSchema()) }

// AppRole returns the name of the role that logs in for the app of a schema.
func AppRole(schema string) string { return cut(Identifier, "_", schema+"_app") }

// AnonRole returns the name of the role of a schema's anonymous readers.
func AnonRole(schema string) string { return cut(Identifier, "_", schema+"_anon") }

func (a App) schema() string {
	name := a.Schema
	if name == "" {
		name = a.Name
	}
	name = strings.ReplaceAll(a.suffixed(name), "-", "_")
	if a.Environment != v1alpha1.Preview {
		return a.short() + "_" + name
	}
	// PostgreSQL keeps pg_ for itself.
	if strings.HasPrefix(name, "pg_") {
		return "app_" + name
	}
	return name
}

// Bucket returns the name of one of the app's buckets.
func (a App) Bucket(name string) string {
	return cut(BucketName, "-", "plattr-"+a.short()+"-"+a.suffixed(a.Name)+"-"+name)
}

// LocalBucket returns the name of one of the app's buckets on a developer's machine.
func (a App) LocalBucket(name string) string { return cut(BucketName, "-", a.Name+"-"+name) }

// BucketVariable returns what the variables of one of the app's buckets end in.
func BucketVariable(name string) string {
	return strings.ReplaceAll(strings.ToUpper(name), "-", "_")
}

// Share returns what distinguishes the app among those that share its realm.
func (a App) Share() string {
	if a.PullRequest == 0 {
		return string(a.Environment)
	}
	return "pr" + strconv.FormatInt(a.PullRequest, 10)
}

// Realm returns the name of the realm, which all environments of an app share.
func (a App) Realm() string { return a.Name }

// Client returns the name of the client in the realm.
func (a App) Client() string { return a.Name }

// LocalClient returns the name of the client on a developer's machine.
func (a App) LocalClient() string { return a.Name + "-app" }

// HostName returns the host of the app, below the base domain unless it has a domain of
// its own. It has at most [Host] bytes if the base domain has at most [Base].
func (a App) HostName(base string) string {
	name := cut(Label, "-", a.Name)
	switch {
	case a.Domain != "":
		return a.Domain
	case a.PullRequest != 0:
		return "pr-" + strconv.FormatInt(a.PullRequest, 10) + "." + name + ".preview." + base
	case a.Environment == v1alpha1.Production:
		return name + "." + base
	default:
		return name + "." + string(a.Environment) + "." + base
	}
}

// Namespace returns the namespace of the copy for a pull request. It ends in a digest of the
// namespace of the Application: no copy in another namespace has the same.
func (a App) Namespace() string {
	number := strconv.FormatInt(a.PullRequest, 10)
	sum := sha256.Sum256([]byte(a.Home + "/" + a.Name + "/" + number))
	tail := "-" + hex.EncodeToString(sum[:])[:digest]
	return cut(Label-len(tail), "-", "preview-"+a.Name+"-pr-"+number) + tail
}

// cut returns the name if it is not too long, and otherwise its beginning with a digest
// of the whole.
func cut(limit int, separator, name string) string {
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:limit-digest-1], "-_.") + separator + hex.EncodeToString(sum[:])[:digest]
}
