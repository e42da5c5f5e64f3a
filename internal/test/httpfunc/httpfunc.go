// Package httpfunc is for tests that stand between a client and its server, or in the server's place.
package httpfunc

import "net/http"

// Transport is an [http.RoundTripper] made of a function.
type Transport func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f Transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
