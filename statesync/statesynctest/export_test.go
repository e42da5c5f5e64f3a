package statesynctest

import (
	"context"
	"fmt"
	"time"
)

// Check runs one subtest of Run.
func Check(ctx context.Context, name string, s Store) error {
	for _, c := range checks() {
		if c.name == name {
			return c.run(ctx, s)
		}
	}
	return fmt.Errorf("there is no subtest %q", name)
}

// FirstFailure returns the first check of RunServer that fails, if one does.
func FirstFailure(ctx context.Context, open func() Server) string {
	for _, check := range serverChecks {
		if check.run(ctx, open()) != nil {
			return check.name
		}
	}
	return ""
}

// Impatient returns s with checks that wait for a frame no longer than that.
func Impatient(patience time.Duration, s Server) Server {
	s.patience = patience
	return s
}

// ReaderFailure runs one check of RunReader, which waits no longer than that.
func ReaderFailure(ctx context.Context, name string, reader ReaderProgram, patience time.Duration) error {
	for _, check := range readerChecks() {
		if check.name == name {
			return runReaderCheck(ctx, check, reader, patience)
		}
	}
	return nil
}
