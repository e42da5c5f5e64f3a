package agent

import (
	"errors"
	"net/http"
	"syscall"
)

// refused hides from a watch that begins with a list that its connection was
// refused: a reflector would wait up to a minute then, whatever its context says,
// and the agent could not stop while the API server is down. Now it lists instead,
// and waits as long, or until its context ends.
type refused struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (r refused) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := r.RoundTripper.RoundTrip(request)
	if errors.Is(err, syscall.ECONNREFUSED) && request.URL.Query().Has("sendInitialEvents") {
		return nil, errors.New(err.Error())
	}
	return answer, err
}
