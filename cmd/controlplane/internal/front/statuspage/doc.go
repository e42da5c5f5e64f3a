// Package statuspage is the status page of the control plane: clusters, regions,
// and how full the clusters are.
//
// It is one HTML document, complete as it is served: it can be read without
// JavaScript. With JavaScript its sections are replaced as they change, by
// server-sent events. No resource is fetched from another origin, and the content
// security policy allows neither inline scripts nor inline styles.
//
// # What it costs
//
// One poller asks the database for all viewers, and for none while there are
// none: at most once in [Config.Interval], and not more than a tenth of the time.
// Pages that are opened in between are served from what it found. Beside that a
// page or a stream costs one query, for its session.
//
// A viewer gets the sections that are newer than those it was sent last, as they are
// when it is ready for them. A slow viewer skips states and never holds up another.
//
// # Access
//
// It takes the admin token, as a bearer or once in the login form. The form answers with
// a cookie that holds 32 random bytes; the database keeps a hash of them that is
// keyed with the admin token, so that a session ends by logout, after 12 hours,
// or when the token is changed, on every replica. Requests that change something
// are refused from other origins.
//
// # What is shown
//
// What agents report is untrusted: it is escaped, and characters that would steer a
// terminal, or the direction of text, are replaced.
//
// A cluster is silent when its agent neither fetched nor reported for
// [Config.Silence].
// The token of an agent needs a look once it has ended, or less than a quarter of
// [Config.TokenLifetime] is left.
// Services are counted by their standing; see package server. A deletion
// is held when the service is deleted and the agent still reports it. A line has the
// readiness of the change log with the reason in /readyz, its queue, and whether its epoch has
// changed.
//
// Every service is a row below /status/services: what needs a look first, and of that what has
// been so for longest. One that is on its way for ten minutes makes no progress. Every cluster and
// region is a row below /status/clusters and /status/regions: what needs a look first, then by
// name, in pages by a cursor. The page of each says since when it is so, why, and what a person can
// do, with the command to type. A time that the database does not have is not shown. These pages
// read the database for each request, and do not follow what changes. The lists of clusters and
// regions read a row of each, and beside it those services and objects alone that fail.
//
// The table of changes has the last ones of the audit; a search looks at the last 500.
package statuspage
