// Package agents is what clusters and regions have in common. Each is the scope of an agent: a
// row of a table, with the hash of the token of its agent, the deletions that the agent holds,
// and an administration.
package agents

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Scopes are the clusters, or the regions. They are safe for concurrent use. The fields of SQL
// never come from a request.
type Scopes struct {
	// Database has the table. Required.
	Database *db.Database
	// Kind is what the audit calls one, and the table with an s. The table has the columns
	// id, terms_of, held_deletions, approved_deletions, and the hashes and ends of the token, of the one
	// before and of the next. Required.
	Kind string
	// Lifetime is how long a token is valid that an agent has renewed; one that was shown to a
	// person has half of it, and a day at most. Zero: tokens have no end, and none is renewed.
	Lifetime time.Duration
	// Contact is the column or expression of when an agent was heard of last, a Unix time in
	// milliseconds. Wanted is an expression that counts what is wanted in a scope. Required
	// for Remove.
	Contact, Wanted string
	// Rows are the statements that delete a scope and all that is stored in it, in this order.
	// Each ? stands for its id.
	Rows []string
	// Unknown is the error of a scope that is not registered. Required.
	Unknown error
	// NotEmpty and Alive say why a scope is not removed, and what to do. Required for Remove.
	NotEmpty, Alive string
}

// Registered returns an error if there is no such scope.
func (s Scopes) Registered(ctx context.Context, id string) error {
	return s.wrap("find", id, s.Database.Read(ctx, func(tx *db.Tx) error { return s.Lock(ctx, tx, id) }))
}

// Lock returns an error if there is no such scope. In a transaction that writes it locks the row,
// and with it new rows that refer to it.
func (s Scopes) Lock(ctx context.Context, tx *db.Tx, id string) error {
	return db.Missing(tx.QueryRowContext(ctx, `SELECT id FROM `+s.table()+` WHERE id = ?`+tx.Lock, id).Scan(&id), s.Unknown)
}

func (s Scopes) table() string { return s.Kind + "s" }

// wrap returns the error of an action on a scope, nil for nil.
func (s Scopes) wrap(action, id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s: %w", action, s.Kind, id, err)
}

// Remove removes a scope and all that is stored in it. What its agent has made stays. Nothing
// must be wanted there, unless abandon is true, and its agent must be silent: one that is alive
// would take the removal for a loss, and delete nothing. Otherwise the error is the answer: 409
// not_empty or alive.
func (s Scopes) Remove(ctx context.Context, id string, abandon bool) error {
	return s.wrap("remove", id, s.Database.Write(ctx, func(tx *db.Tx) error {
		if err := s.Lock(ctx, tx, id); err != nil {
			return err
		}
		var contact int64
		var token string
		var wanted int
		if err := tx.QueryRowContext(ctx, `SELECT `+s.Contact+`, token_hash, `+s.Wanted+` FROM `+s.table()+` WHERE id = ?`, id).
			Scan(&contact, &token, &wanted); err != nil {
			return err
		}
		silent := time.Since(time.UnixMilli(contact))
		switch {
		case wanted > 0 && !abandon:
			return &adminapi.Error{Status: http.StatusConflict, Code: "not_empty", Message: s.NotEmpty}
		case silent < adminapi.Silence:
			return &adminapi.Error{Status: http.StatusConflict, Code: "alive", Message: s.Alive}
		}
		if err := tx.ExecEach(ctx, id, s.Rows...); err != nil {
			return err
		}
		ended := tokens.Mark(token)
		return audit.Record(ctx, tx, audit.Change{Verb: audit.Removal(abandon), Kind: s.Kind, Name: id, Outcome: audit.Deleted, Ended: ended})
	}))
}
