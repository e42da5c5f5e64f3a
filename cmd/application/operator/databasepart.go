package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/database"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/cmd/application/names"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// databases is what the operator asks of a server of PostgreSQL.
type databases interface { //nolint:interfacebloat // one implementation, and a faulty one in tests
	Check(ctx context.Context, want database.Want) error
	Apply(ctx context.Context, want database.Want) (done []string, err error)
	Delete(ctx context.Context, want database.Want, retain bool) (done []string, err error)
	Address() (host string, port int, database string)
	URL(want database.Want) string
	PostgRESTURL(want database.Want) string
	Close()
}

// databasePart is a schema with its roles, and the Secret with what the app logs in with.
//
// The Secret comes first: a password is kept before a role has it. What the Secret holds
// counts, so that a restart, another leader and an edit of either side end in one
// password.
func (p *pass) databasePart() *part {
	spec, n := &p.subject.app.Spec.Database, p.subject.names
	t := &part{
		condition: v1alpha1.ConditionDatabase, child: p.secretID(),
		outside: outside.Part{
			Name: "database", Wanted: spec.Enabled, Gate: p.op.gates.database,
			Kinds: []string{string(v1alpha1.KindSchema), string(v1alpha1.KindRole)},
			Things: things(
				v1alpha1.External{Kind: v1alpha1.KindSchema, ID: n.DatabaseSchema(), Policy: spec.DeletionPolicy},
				v1alpha1.External{Kind: v1alpha1.KindRole, ID: n.AppRole(), Policy: spec.DeletionPolicy},
				v1alpha1.External{Kind: v1alpha1.KindRole, ID: n.AnonRole(), Policy: spec.DeletionPolicy},
			),
		},
	}
	want := database.Want{Schema: n.DatabaseSchema(), App: n.AppRole(), Anon: n.AnonRole(), AnonRead: spec.AnonRead, Mark: p.subject.mark}
	server := p.op.database
	if server == nil {
		t.outside.Unset = unset("database", "DB_ADMIN_URL")
	}
	t.outside.Make = func(ctx context.Context) error {
		if err := p.login(ctx, server, want); err != nil {
			return err
		}
		return p.makeDatabase(ctx, server, want)
	}
	t.outside.Delete = func(ctx context.Context, e outside.Thing) error {
		// The three go together, with the schema, which is removed last.
		if e.Kind != string(v1alpha1.KindSchema) {
			return nil
		}
		if t.outside.Unset != nil {
			return t.outside.Unset
		}
		// The recorded schema counts, also when its Application is deleted.
		recorded := database.Want{Schema: e.ID, App: names.AppRole(e.ID), Anon: names.AnonRole(e.ID), Mark: p.subject.mark}
		_, err := server.Delete(ctx, recorded, retained(e))
		return err
	}
	t.configs = func(ctx context.Context) ([]*unstructured.Unstructured, error) {
		if t.outside.Unset != nil {
			return nil, t.outside.Unset
		}
		if err := p.loginAgain(ctx, server, want); err != nil {
			return nil, err
		}
		return []*unstructured.Unstructured{p.secret(server, want)}, nil
	}
	return t
}

// makeDatabase makes the schema and the roles, with the password of the pass.
func (p *pass) makeDatabase(ctx context.Context, server databases, want database.Want) error {
	want.Password = p.password
	done, err := server.Apply(ctx, want)
	p.databaseChanged = p.databaseChanged || len(done) > 0
	if err == nil {
		p.op.checks.gave(p.subject.app.UID, p.password)
	}
	return err
}

// loginAgain reads the password before the Secret is applied: if the pass has none, or has
// written it, and after the database was changed, which takes time. An edit of the Secret in
// that time counts: the role gets its password. So does one that comes still later: the Secret
// is applied to the version that was read.
func (p *pass) loginAgain(ctx context.Context, server databases, want database.Want) error {
	if p.password != "" && p.secretVersion != "" && !p.databaseChanged {
		return nil
	}
	if err := p.login(ctx, server, want); err != nil || !p.op.checks.another(p.subject.app.UID, p.password) {
		return err
	}
	return p.makeDatabase(ctx, server, want)
}

// secret returns the Secret of the database with the password of the pass.
func (p *pass) secret(server databases, want database.Want) *unstructured.Unstructured {
	want.Password = p.password
	o := p.child(
		"v1",
		"Secret",
		p.subject.names.Secret(),
		object{"type": string(corev1.SecretTypeOpaque), "stringData": texts(databaseVariables(p.subject.app, server, want))},
	)
	if p.rotation != "" {
		o.SetAnnotations(map[string]string{v1alpha1.AnnotationRotate: p.rotation})
	}
	return o
}

// login reads the password, or makes one and keeps it in the Secret before anything else
// has it: when there is none, and when another rotation is asked for. Until that can be done, the
// pass has the password of before.
func (p *pass) login(ctx context.Context, server databases, want database.Want) error {
	found, err := p.op.client.Resource(secretsResource).
		Namespace(p.subject.app.Namespace).
		Get(ctx, p.subject.names.Secret(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read the Secret of the database: %w", err)
	}
	rotate := p.subject.app.Annotations[v1alpha1.AnnotationRotate]
	if err == nil {
		if !p.owns(found) {
			return fmt.Errorf(
				"the Secret %s/%s exists and is not of this %s: %w; remove it, or choose another name",
				p.subject.app.Namespace,
				p.subject.names.Secret(),
				p.subject.kind,
				external.ErrOwnedByOther,
			)
		}
		var secret corev1.Secret
		if err := into(found.Object, &secret); err != nil {
			return err
		}
		p.password, p.rotation = string(secret.Data["DB_PASSWORD"]), secret.Annotations[v1alpha1.AnnotationRotate]
		p.secretVersion = found.GetResourceVersion()
		if p.password != "" && !p.migrated() {
			return nil // pods that stay as they are keep the password of before
		}
		if p.password != "" && (rotate == "" || p.rotation == rotate) {
			p.rotation = rotate
			return nil
		}
	}
	if err := server.Check(ctx, want); err != nil {
		return err
	}
	p.password, p.rotation = database.NewPassword(), rotate
	err = p.applySome(ctx, p.secret(server, want))
	p.secretVersion = ""
	if err != nil {
		p.password = ""
	}
	return err
}
