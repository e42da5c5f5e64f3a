package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
)

const tokenBytes = 32

// newToken returns a token to show once and the hash of it to keep.
func newToken() (token, hash string) {
	secret := make([]byte, tokenBytes)
	// Read never fails and fills the whole slice; see crypto/rand.
	_, _ = rand.Read(secret)
	token = base64.RawURLEncoding.EncodeToString(secret)
	return token, hashToken(token)
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// sameToken compares two tokens in a time that does not depend on where they
// differ, nor on their lengths.
func sameToken(a, b string) bool {
	return sameHash(hashToken(a), hashToken(b))
}

func sameHash(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// Authenticate returns the id of the cluster whose token this is, or
// [ErrUnknownToken].
func (s *Store) Authenticate(ctx context.Context, token string) (clusterID string, err error) {
	hash := hashToken(token)
	err = s.Read(ctx, func(tx *db.Tx) error {
		var current, previous string
		var until int64
		err := tx.QueryRowContext(ctx, `SELECT id, token_hash, previous_token_hash, previous_token_until
			FROM clusters WHERE token_hash = ? OR previous_token_hash = ?`, hash, hash).
			Scan(&clusterID, &current, &previous, &until)
		if err != nil {
			return unknown(err, ErrUnknownToken)
		}
		if sameHash(hash, current) || (sameHash(hash, previous) && time.Now().UnixMilli() < until) {
			return nil
		}
		return ErrUnknownToken
	})
	if err != nil {
		return "", fmt.Errorf("authenticate: %w", err)
	}
	return clusterID, nil
}

// RotateToken gives the cluster a new token and returns it. The old token
// stays valid for overlap; zero revokes it at once. A token that was still
// valid from a rotation before is revoked in either case.
func (s *Store) RotateToken(ctx context.Context, clusterID string, overlap time.Duration) (token string, err error) {
	token, hash := newToken()
	err = s.Write(ctx, func(tx *db.Tx) error {
		var old string
		if err := tx.QueryRowContext(ctx, `SELECT token_hash FROM clusters WHERE id = ?`+tx.Lock, clusterID).Scan(&old); err != nil {
			return unknown(err, ErrUnknownCluster)
		}
		var until int64
		if overlap > 0 {
			until = time.Now().Add(overlap).UnixMilli()
		} else {
			old = ""
		}
		_, err := tx.ExecContext(ctx, `UPDATE clusters SET token_hash = ?, previous_token_hash = ?, previous_token_until = ? WHERE id = ?`,
			hash, old, until, clusterID)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("rotate token of cluster %s: %w", clusterID, err)
	}
	return token, nil
}
