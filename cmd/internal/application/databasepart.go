package application

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/application/database"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/application/names"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/application/outside"
)

// databasePart is a schema with its roles, and the Secret with what the app logs in with.
//
// The Secret comes first: a password is kept before a role has it. What the Secret holds
// counts, so that a restart, another leader and an edit of either side end in one
// password.
func (p *pass) databasePart() *part {
	spec, n := &p.app.Spec.Database, p.names
	t := &part{
		name: "database", condition: v1alpha1.ConditionDatabase, enabled: spec.Enabled, gate: p.gates.database,
		kinds: []v1alpha1.ExternalKind{v1alpha1.KindSchema, v1alpha1.KindRole},
		external: []v1alpha1.External{
			{Kind: v1alpha1.KindSchema, ID: n.DatabaseSchema(), Policy: spec.DeletionPolicy},
			{Kind: v1alpha1.KindRole, ID: n.AppRole(), Policy: spec.DeletionPolicy},
			{Kind: v1alpha1.KindRole, ID: n.AnonRole(), Policy: spec.DeletionPolicy},
		},
		child: apply.ID{Kind: "Secret", Namespace: p.app.Namespace, Name: n.Secret()},
	}
	want := database.Want{Schema: n.DatabaseSchema(), App: n.AppRole(), Anon: n.AnonRole(), AnonRead: spec.AnonRead, Mark: p.mark}
	server := p.database
	if server == nil {
		t.unset = unset("database", "DB_ADMIN_URL")
	}
	t.apply = func(ctx context.Context) error {
		if t.unset != nil {
			return t.unset
		}
		if err := p.login(ctx, server, want); err != nil {
			return err
		}
		with := want
		with.Password = p.password
		_, err := server.Apply(ctx, with)
		return err
	}
	t.delete = func(ctx context.Context, e v1alpha1.External) error {
		// The three go together, with the schema, which is removed last.
		if e.Kind != v1alpha1.KindSchema {
			return nil
		}
		if t.unset != nil {
			return t.unset
		}
		// The recorded schema counts, also when its Application is gone.
		recorded := database.Want{Schema: e.ID, App: names.AppRole(e.ID), Anon: names.AnonRole(e.ID), Mark: p.mark}
		_, err := server.Delete(ctx, recorded, e.Policy == v1alpha1.Retain)
		return err
	}
	t.configs = func(ctx context.Context) ([]*unstructured.Unstructured, error) {
		if t.unset != nil {
			return nil, t.unset
		}
		if p.password == "" {
			if err := p.login(ctx, server, want); err != nil {
				return nil, err
			}
		}
		return []*unstructured.Unstructured{p.secret(server, want)}, nil
	}
	return t
}

// secret returns the Secret of the database with the password of the pass.
func (p *pass) secret(server *database.Server, want database.Want) *unstructured.Unstructured {
	want.Password = p.password
	o := p.child("v1", "Secret", p.names.Secret(), object{"type": string(corev1.SecretTypeOpaque), "stringData": texts(databaseVariables(p.app, server, want))})
	if rotate := p.app.Annotations[v1alpha1.AnnotationRotate]; rotate != "" {
		o.SetAnnotations(map[string]string{v1alpha1.AnnotationRotate: rotate})
	}
	return o
}

// login reads the password, or makes one and keeps it in the Secret before anything else
// has it: when there is none, and when another rotation is asked for.
func (p *pass) login(ctx context.Context, server *database.Server, want database.Want) error {
	found, err := p.client.Resource(secretsResource).Namespace(p.app.Namespace).Get(ctx, p.names.Secret(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read the Secret of the database: %w", err)
	}
	rotate := p.app.Annotations[v1alpha1.AnnotationRotate]
	if err == nil {
		if !p.owns(found) {
			return fmt.Errorf("the Secret %s/%s exists and is not of this %s: %w; remove it, or choose another name", p.app.Namespace, p.names.Secret(), p.object.Kind, outside.ErrOwnedByOther)
		}
		var secret corev1.Secret
		if err := into(found.Object, &secret); err != nil {
			return err
		}
		if password := string(secret.Data["DB_PASSWORD"]); password != "" && (rotate == "" || secret.Annotations[v1alpha1.AnnotationRotate] == rotate) {
			p.password = password
			return nil
		}
	}
	if err := server.Check(ctx, want); err != nil {
		return err
	}
	p.password = database.NewPassword()
	if err := p.applySome(ctx, p.secret(server, want)); err != nil {
		p.password = ""
		return err
	}
	return nil
}
