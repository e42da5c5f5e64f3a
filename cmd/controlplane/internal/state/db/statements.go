package db

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
)

// maxStatements is how many statements a connection keeps. Those beyond are parsed each time.
const maxStatements = 200

// keeping is a connector to SQLite whose connections keep the statements that they have parsed:
// parsing one costs several times what running it does. The driver of PostgreSQL does so by itself.
type keeping struct{ driver.Connector }

// Connect implements [driver.Connector].
func (k keeping) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := k.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, ok := opened.(connection)
	if !ok {
		return nil, fmt.Errorf("connection is a %T, which lacks a method", opened)
	}
	return &keptConn{connection: conn, statements: map[string]*statement{}}, nil
}

// connection is what the driver of SQLite has.
type connection interface { //nolint:interfacebloat // the sum of what database/sql asks for
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// keptConn is a connection with its statements, by their text. Package sql uses it from one goroutine
// at a time.
type keptConn struct {
	connection
	statements map[string]*statement
}

// runnable is what the statements of the driver are.
type runnable interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// statement is one that was parsed.
type statement struct {
	run runnable
	// open is true while its rows are read: then it cannot be run again.
	open bool
}

// statement returns the statement with this text to be run now, nil if it is not kept: then the
// driver parses it.
func (c *keptConn) statement(ctx context.Context, query string) *statement {
	if found := c.statements[query]; found != nil {
		if found.open {
			return nil
		}
		return found
	}
	verb, _, _ := strings.Cut(strings.TrimSpace(query), " ")
	switch verb {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH":
	default:
		return nil
	}
	if len(c.statements) >= maxStatements || strings.Contains(query, ";") {
		return nil
	}
	parsed, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil // the driver says what is wrong with it
	}
	run, ok := parsed.(runnable)
	if !ok {
		_ = parsed.Close()
		return nil
	}
	s := &statement{run: run}
	c.statements[query] = s
	return s
}

// ExecContext implements [driver.ExecerContext].
func (c *keptConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s := c.statement(ctx, query)
	if s == nil {
		return c.connection.ExecContext(ctx, query, args)
	}
	return s.run.ExecContext(ctx, args)
}

// QueryContext implements [driver.QueryerContext].
func (c *keptConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s := c.statement(ctx, query)
	if s == nil {
		return c.connection.QueryContext(ctx, query, args)
	}
	rows, err := s.run.QueryContext(ctx, args)
	if err != nil {
		return nil, err
	}
	s.open = true
	return &keptRows{Rows: rows, of: s}, nil
}

// Close implements [driver.Conn].
func (c *keptConn) Close() error {
	for _, s := range c.statements {
		_ = s.run.Close() // the connection's end matters
	}
	clear(c.statements)
	return c.connection.Close()
}

// keptRows are the rows of a kept statement.
type keptRows struct {
	driver.Rows
	of *statement
}

// Close implements [driver.Rows].
func (r *keptRows) Close() error {
	r.of.open = false
	return r.Rows.Close()
}
