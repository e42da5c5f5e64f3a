//trueup:pure

package cloud

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// A LaunchIntent is a launch that was recorded before the cloud was called. It
// stays recorded until each of its machines has a Node or has ended. While it is
// recorded, its machines count against the size of the pool, whatever a list shows.
type LaunchIntent struct {
	// Operation is the idempotency token of the launch, and a tag of each of its
	// machines.
	Operation string
	// Ordinal and Attempt are the inputs of Operation.
	Ordinal, Attempt int64
	// Template and Hash are the name and the hash of the [Template].
	Template, Hash string
	// Count is how many machines were requested.
	Count int
	// IDs are the created machines, less than Count if the cloud lacked capacity. Empty
	// until the answer is recorded.
	IDs []string
	// Since is when the intent, or the answer, was recorded.
	Since time.Time
}

// Token returns the idempotency token of a launch: 32 hexadecimal digits of a
// SHA-256 over its parts, each with its length. Pools never share a token, and
// neither do two launches of one pool, as long as the ordinal is not used again.
func Token(poolUID string, ordinal, attempt int64) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(len(poolUID)))
	b = append(b, poolUID...)
	b = binary.BigEndian.AppendUint64(b, uint64(ordinal))
	b = binary.BigEndian.AppendUint64(b, uint64(attempt))
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// next returns the intent of another attempt at the same launch.
func (l LaunchIntent) next(poolUID string, now time.Time) LaunchIntent {
	l.Attempt++
	l.Operation = Token(poolUID, l.Ordinal, l.Attempt)
	l.Since = now
	return l
}
