//go:build !unix

package main

import "errors"

// pipe fails: the story needs a Kubernetes, and that a Unix.
func pipe(string) error { return errors.ErrUnsupported }
