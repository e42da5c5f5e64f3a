package starbase

// ErrorBody is the body of every answer that is an error.
type ErrorBody struct {
	// Error is the error.
	Error ErrorDetail `json:"error"`
}

// ErrorDetail is one error of the API.
type ErrorDetail struct {
	// Code is one word for programs, such as "unknown_cluster".
	Code string `json:"code"`
	// Message is one sentence for people.
	Message string `json:"message"`
	// Fields lists the fields that were refused, for the code "invalid".
	Fields []FieldError `json:"fields,omitempty"`
	// RequestID is that of the header X-Request-Id, as lines of the log have it.
	RequestID string `json:"request_id,omitempty"`
}

// FieldError is one field that was refused.
type FieldError struct {
	// Field is the path of the field, such as "ports[1].container_port".
	Field string `json:"field"`
	// Value is what was there, shortened. It is empty where the value may be
	// a secret.
	Value string `json:"value"`
	// Want is a description of what would be right.
	Want string `json:"want"`
}

// Error implements error in one line.
func (e FieldError) Error() string {
	if e.Value == "" {
		return e.Field + ": want " + e.Want
	}
	return e.Field + " is " + e.Value + ": want " + e.Want
}
