//go:build !unix

package main

import "errors"

func become([]string) error { return errors.ErrUnsupported }
