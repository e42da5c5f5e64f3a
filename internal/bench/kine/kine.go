package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"time"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/endpoint"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcd is kine: an etcd on a table of the database, in this process. Its writers
// have no transaction of their own that it could join.
type etcd struct {
	client *clientv3.Client
	db     *sql.DB
}

func (e *etcd) start(ctx context.Context, url string) error {
	dir, err := os.MkdirTemp("", "kine")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = os.RemoveAll(dir) })
	// The defaults of its program.
	found, err := endpoint.Listen(ctx, endpoint.Config{
		Endpoint: url, Listener: "unix://" + filepath.Join(dir, "kine.sock"),
		ConnectionPoolConfig: generic.ConnectionPoolConfig{MaxIdle: 20, MaxIdleTime: 2 * time.Minute},
		PollInterval:         time.Second, PollBatchSize: 500, NotifyInterval: 5 * time.Second, EmulatedETCDVersion: "3.6.11",
		CompactTimeout: 5 * time.Second, CompactMinRetain: 1000, CompactBatchSize: 1000,
	})
	if err != nil {
		return err
	}
	if e.client, err = clientv3.New(clientv3.Config{Endpoints: found.Endpoints, Context: ctx}); err != nil {
		return err
	}
	e.db, err = sql.Open("pgx", url)
	return err
}

func (e *etcd) write(ctx context.Context, key, value string) error {
	_, err := e.client.Put(ctx, "/"+key, value)
	return err
}

// stall is a writer of another replica that has its row written.
func (e *etcd) stall(ctx context.Context, key, value string) (release func() error, err error) {
	return within(ctx, e.db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value, old_value)
			VALUES ($1, 1, 0, 0, 0, 0, $2, NULL)`, "/"+key, []byte(value))
		return err
	}, func() {})
}

func (e *etcd) follow(ctx context.Context, got func(string)) error {
	for answer := range e.client.Watch(ctx, "/", clientv3.WithPrefix()) {
		if err := answer.Err(); err != nil {
			return err
		}
		for _, event := range answer.Events {
			got(string(event.Kv.Value))
		}
	}
	return nil
}
