package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// cut makes the commit of a release in a temporary clone, builds the release from it, and
// tags it in the checkout if all of that went well. It pushes nothing.
func (r *release) cut(ctx context.Context, build bool) (err error) {
	modules, err := r.parts(ctx)
	if err != nil {
		return err
	}
	if err := r.publishable(ctx, modules); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp("", "trueup-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	clone := filepath.Join(temporary, "trueup")
	if err := r.clone(ctx, clone); err != nil {
		return err
	}
	revision, err := r.pin(ctx, clone, modules)
	if err != nil {
		return err
	}
	if build {
		from := *r
		from.root = clone
		if err := from.archive(ctx); err != nil {
			return err
		}
	}
	return r.tag(ctx, clone, revision, modules)
}
