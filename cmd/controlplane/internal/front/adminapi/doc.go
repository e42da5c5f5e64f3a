// Package adminapi is what REST endpoints of the control plane have in common:
// routes, JSON bodies, parameters in paths, and answers.
//
// A [Handler] returns an error instead of writing it, and [API] answers: an [Error]
// as it is, an error of a store by the API's [Condition] of it, and any other with
// 500 and a text that does not repeat it. The body of an error never parses as a
// result.
package adminapi
