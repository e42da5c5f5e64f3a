package starbase

// Reason is one word for why a body was refused. The set is closed, so a
// Reason can be a metric label.
type Reason string

// The reasons for which [Decode] refuses a body.
const (
	// ReasonRead is a body that could not be read to its end.
	ReasonRead Reason = "read"
	// ReasonTooLarge is a body of more than [MaxBody] bytes.
	ReasonTooLarge Reason = "too_large"
	// ReasonParse is a body that is not exactly one JSON object of the right
	// shape; one that was cut off is among them.
	ReasonParse Reason = "parse"
	// ReasonSchema is a body of a schema this package does not read.
	ReasonSchema Reason = "schema"
	// ReasonClusterID is a body for another cluster.
	ReasonClusterID Reason = "cluster_id"
	// ReasonIncomplete is a body without version or services or, where schema
	// is present, without complete, epoch or generation.
	ReasonIncomplete Reason = "incomplete"
	// ReasonCounts is a body whose lists are not as long as its counts say.
	ReasonCounts Reason = "counts"
	// ReasonDigest is a body whose content has another digest than the one in it.
	ReasonDigest Reason = "digest"
)

// RefusedError reports a desired state that must not be used, whole or in
// part.
type RefusedError struct {
	// Reason is the machine-readable reason.
	Reason Reason
	// Err is the detail. It names members and sizes, and no value of an
	// environment variable or var group.
	Err error
}

// Error implements error.
func (e *RefusedError) Error() string {
	return "desired state refused (" + string(e.Reason) + "): " + e.Err.Error()
}

// Unwrap returns the detail, such as io.ErrUnexpectedEOF of a cut connection.
func (e *RefusedError) Unwrap() error { return e.Err }

func refuse(reason Reason, err error) *RefusedError {
	return &RefusedError{Reason: reason, Err: err}
}
