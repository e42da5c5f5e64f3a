// Package adminapi is what REST endpoints of the control plane have in common:
// routes, JSON bodies, parameters in paths, and answers.
//
// A [Handler] returns an error instead of writing it. [API] answers with it: an
// [Error] as it is, the condition of a store as the table of the API says, and
// any other error as 500 with a text that repeats nothing of it. No answer with an
// error has a body that a reader could take for a result.
package adminapi
