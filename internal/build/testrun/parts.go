package main

import (
	"context"
	"errors"
	"os"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
)

// parts are what the tests of all packages share: a PostgreSQL, in which each test has
// databases of its own, and the programs.
type parts struct {
	postgres  *pgtest.Server
	dir       string   // of the programs
	variables []string // that tell the tests
}

// startParts starts what can be started here. The tests name what cannot.
func startParts(ctx context.Context) (*parts, error) {
	dir, err := os.MkdirTemp("", "trueup-programs-")
	if err != nil {
		return nil, err
	}
	p := &parts{dir: dir, variables: []string{programs.Variable + "=" + dir}}
	err = programs.Build(ctx, dir, "agentjob", "application", "controlplane", "demo", "krane", "nodepool", "shuttle")
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	p.postgres, err = pgtest.Run(ctx, pgtest.Options{Settings: []string{"max_connections=1000"}})
	if errors.Is(err, pgtest.ErrNotInstalled) {
		return p, nil
	}
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	variable, err := p.postgres.Variable()
	p.variables = append(p.variables, variable)
	return p, err
}

func (p *parts) stop() error {
	if p.postgres != nil {
		p.postgres.Stop()
	}
	return os.RemoveAll(p.dir)
}
