// Package applytest tests a program that talks to an API server: it sits between the
// two, counts the requests, and injects faults.
//
// It works on HTTP and serves any reconciler, built on any library: give the program a
// rest.Config whose transport is wrapped.
//
//	var net applytest.Transport
//	config.Wrap(net.Wrap)
//	// ... let the program converge ...
//	net.Reset()
//	// ... let it do another pass ...
//	net.NoWrites(t)
//
// # What it can do
//
//   - Count and assert: [Transport.Requests], [Transport.NoRequests],
//     [Transport.NoWrites].
//   - Fail: [Transport.Fault] is asked before each request and may delay it, answer
//     in the server's place (429 with Retry-After, 500, 409), lose the request or
//     its answer.
//   - Crash: a fault that lets nothing through from then on, before or after a
//     given request. A [Sweep] does so, or disturbs the program in other ways, at
//     every request of a scenario, and compares how each attempt ends.
//   - Delay the program's view of the world: [Transport.Freeze] holds back the events
//     of watches, [Transport.Thaw] delivers them, [Transport.Replay] delivers them once
//     more, [Transport.Cut] ends the watches, [Transport.Expire] makes them start from
//     a new list.
//
// Everything may be called while requests are under way. Use a Transport for one
// program, or for one client of it.
package applytest
