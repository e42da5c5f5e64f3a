package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// controlPlane runs the control plane and speaks to its admin API.
type controlPlane struct {
	demo     *demo
	postgres bool // keep everything in a PostgreSQL, not in a SQLite file

	process          *process.Process
	database         string // path or URL
	base             string
	token, tokenFile string
}

// start is the stage that starts it.
func (c *controlPlane) start(ctx context.Context) (_ string, err error) {
	c.token = rand.Text() + rand.Text()
	if c.tokenFile, err = c.demo.file("admin.token", c.token); err != nil {
		return "", err
	}
	c.database = filepath.Join(c.demo.dir, "trueup.db")
	if c.postgres {
		server, err := pgtest.Run(ctx, pgtest.Options{})
		if err != nil {
			return "", err
		}
		c.demo.atEnd(server.Stop)
		if err := server.SQL(ctx, "postgres", "CREATE DATABASE demo OWNER trueup"); err != nil {
			return "", err
		}
		c.database = server.URL("demo")
	}
	err = c.run(ctx, "127.0.0.1:0")
	return "on " + c.base + ", database " + c.database, err
}

func (c *controlPlane) run(ctx context.Context, listen string) (err error) {
	c.process, c.base, err = c.demo.start(ctx, "controlplane", "", nil,
		"--listen", listen, "--metrics-bind-address", "", "--database", c.database, "--admin-token-file", c.tokenFile)
	c.base = "http://" + c.base
	return err
}

// restart kills it as by kill -9, and starts it where it was.
func (c *controlPlane) restart(ctx context.Context) error {
	c.process.Kill()
	c.demo.running = slices.DeleteFunc(c.demo.running, func(p *process.Process) bool { return p == c.process })
	if err := os.Remove(c.process.Log); err != nil { // its line "listening" is not that of the next
		return err
	}
	return c.run(ctx, strings.TrimPrefix(c.base, "http://"))
}

// do sends a request to the admin API. answer may be nil.
func (c *controlPlane) do(ctx context.Context, method, path string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return send(ctx, method, c.base+"/api/v1/admin/"+path, "Bearer "+c.token, "application/json", string(data), answer)
}

// register puts a cluster or a region, and returns a file with its token.
func (c *controlPlane) register(ctx context.Context, path string, body object) (tokenFile string, err error) {
	var answer struct{ Token string }
	if err := c.do(ctx, http.MethodPut, path, body, &answer); err != nil {
		return "", err
	}
	return c.demo.file(filepath.Base(path)+".token", answer.Token)
}

// curl begins the command of a user who looks at the admin API.
func (c *controlPlane) curl() string {
	return `curl -H "Authorization: Bearer $(cat ` + c.tokenFile + `)" ` + c.base + "/api/v1/admin/"
}
