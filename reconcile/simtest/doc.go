// Package simtest runs a Kubernetes controller in a simulated world and reports
// what it does wrong there.
//
// The world has one seed, one virtual clock, and an API server in memory that is
// slow, forgets watches, refuses requests, loses answers and lets others write in
// between. The program is killed before and after its requests. It is any
// controller that takes an http.RoundTripper, such as a rest.Config of client-go
// with the field Transport: the package imports nothing of Kubernetes.
//
//	func TestWidgets(t *testing.T) {
//		simtest.Run(t, func() simtest.Scenario {
//			return simtest.Scenario{
//				Kinds: []simtest.Kind{{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Status: true}},
//				Program: func(ctx context.Context, net http.RoundTripper) error {
//					return start(ctx, &rest.Config{Host: "http://simtest", Transport: net, QPS: -1})
//				},
//				Edit: func(w *simtest.World) {
//					name := fmt.Sprint("w", w.Random.IntN(3))
//					// ... create, change or delete that Widget
//				},
//				Check: func(w *simtest.World, c simtest.Change) error {
//					if c.By == "program" && c.Before != nil && c.Before.Owner() == "" {
//						return fmt.Errorf("%s: not ours", c.Request)
//					}
//					return nil
//				},
//				Converged: func(w *simtest.World) error { ... },
//			}
//		})
//	}
//
// # What is tested
//
// [Run] simulates one history for each seed, and then a sweep. In a history a user
// edits the desired state while requests and watches fail and the program is killed.
// What else happens, and how often, the seed chooses from [Habits]. Then the faults
// stop. The history is wrong in one of these cases:
//
//   - The program sent a request that a real server serves and this one does not, or one that
//     its own Rights do not allow.
//   - There was something to do, and the server accepted no write of the program.
//   - Check returned an error for a write, at any time.
//   - Converged returned an error after Settle.
//   - One of Bounds, or a World.Within, was not kept.
//   - The program sent more than Requests in a minute without faults.
//   - The program wrote within Rest, 24 hours with a restart in the middle.
//   - The end differs from a second world, in which the same desired state
//     exists from the start and nothing fails. That world, too, is judged.
//   - The program did not return within a minute of virtual time after its context
//     had ended.
//
// The sweep kills the program once before and once after each request of a history
// without other faults. It is wrong in the same cases, but does not rest.
//
// A program may also call something else than the API server, such as a cloud in memory:
// such a [Call] takes its turn among the requests, and counts as one of them in a sweep. A
// scenario may have habits of its own.
//
// # Bounds of time
//
// A [Bound] says for how long something may not be as it must be, in every phase of a history:
//
//	Bounds: []simtest.Bound{{What: "the phase follows the pods", Within: 10 * time.Second, Late: func(w *simtest.World) []string {
//		... // the names of the Widgets whose phase differs now
//	}}},
//	Recovery: 5 * time.Minute,
//
// It looks after each write, so it reads by World.Stored and World.AllStored, which copy nothing.
// The time that requests and events are held up is taken out. After a disturbance it begins again
// Recovery later, the longest time until the program tries again. So a history without
// disturbances has the bounds of a contract to the second, and one with them says how soon all is
// well after the last one. World.Within is the same for one event, and World.Disturb says what
// the scenario itself does to the program.
//
// # One seed, one history
//
// A history runs in a bubble of testing/synctest, in which time passes only while
// every goroutine waits: 25 hours take less than a second. Requests are served one
// by one, each when the program has no more to do, and events are delivered
// likewise. Their order and each fault depend on the seed alone, so a seed gives
// the same trace, byte for byte, if the program itself leaves nothing to chance.
// What happens to a request depends on the seed, the request, and how many like it
// came before, so a program that does leave something to chance still meets the
// same faults.
//
// A controller of package reconcile/kube leaves nothing to chance, with a Backoff without
// jitter, or with a Seed, and a Lease with an Identity. But goroutines of a program that go on in
// the same instant, such as two loops that one event wakes, may do so in any order: in a test
// that calls runtime.GOMAXPROCS(1), and is not parallel, they take the same one. These parts of
// client-go leave something to chance, too, and this helps:
//
//   - A reflector lists again after a random delay. The next list of a view is
//     answered later than that: 2 seconds after the first failure, at most 64
//     seconds after later ones.
//   - A cache that is filled by a watch (WatchList), and the resync of an informer,
//     have a random order. Such watches are refused unless Scenario.WatchList is
//     set. A resync of 0 avoids the other.
//   - retry.RetryOnConflict and other pauses with jitter draw from math/rand:
//     GODEBUG=randautoseed=0 makes them repeat.
//   - An informer may deliver two events before or after a worker has begun with
//     the first. AddAfter with some milliseconds, in place of Add, makes them one.
//   - An informer that lists again reports the deleted objects in random
//     order.
//   - The error handlers of k8s.io/apimachinery/pkg/util/runtime keep the time of
//     their last error for the process, and sleep until then. In a bubble that is
//     years away: set ErrorHandlers to nil in TestMain, or give each informer a
//     watch error handler.
//
// A mutex that is held during a request stops the time of the bubble for good once another
// goroutine waits for it. A channel does not. The RESTMappers of client-go and controller-runtime
// that discover kinds hold one: Mapper of reconcile/simtest/upstream sends no request.
//
// A program whose context has ended must end all its goroutines, or the test panics
// with "blocked goroutines remain". The priority queue of controller-runtime may
// leave one that hands out an item to a worker that has gone; set UsePriorityQueue
// of its config.Controller to false. Its Manager spins for ever if it has an index and is
// stopped before its caches are synced, and time does not pass then: wrap its cache, as
// internal/published/cainjector does.
//
// A test that fails logs the command that repeats the one history with its trace:
//
//	SIMTEST_SEED=22 go test -count=1 -v -run '^TestWidgets$'
//
// It looks for a smaller history that goes wrong in the same way, and writes it as a story,
// which [Replay] repeats, and as a page of HTML.
//
// # What the server keeps of a real one
//
// It keeps resourceVersions, UIDs and generations, as each built-in kind and as custom
// resources have them; conflicts and the preconditions of updates, patches and
// deletions; generated names; the validation of metadata; the status subresource, with
// the metadata that it takes of built-in kinds; scale of workloads; binding and eviction
// of pods, with a PodDisruptionBudget; finalizers and deletionTimestamps; graceful
// deletion of pods; the propagation policies Background, Foreground and Orphan; lists
// with label selectors, the field selectors of each kind, pages and continue tokens;
// metadata-only reads and tables with name and age; discovery, aggregated or not; dry
// runs; watches from any version, with bookmarks, that end after minutes or with 410 once
// the history was dropped. Events and Leases are served without being asked for. If
// namespaces are among Kinds, they must exist, and go with all that is in them. The
// garbage collector does its part some seconds later: it deletes what has lost all its
// owners, takes away references to those that are gone, and ends orphaning and foreground
// deletion. It leaves alone what has an owner of a kind that the server does not have.
// Reads of resourceVersion 0 may be old while there are faults; all others see the newest
// state. A write that changes nothing makes no version and no event.
//
// A random conversation with a kube-apiserver tests that codes, reasons, bodies and
// events are the same.
//
// A Machinery, such as that of reconcile/simtest/upstream, a module of its own, adds what
// needs the code of a real server: managedFields and server-side apply, JSON and
// strategic merge patches, and bodies of protobuf and YAML. Definitions of that module gives
// custom kinds the [Schema] of their CustomResourceDefinition: pruning, defaults, validation
// with rules of CEL, list types, scale and selectable fields.
//
// It sets the defaults of common built-in kinds: Services, with an address, workloads and the
// pods in them, except for probes and volumes. It refuses a Service without ports,
// and a workload without containers or with a selector that its template does not match, and changes
// of fields that are immutable, such as that selector. It moves stringData of Secrets to their data,
// and gives Jobs their selectors.
//
// It lacks all other defaults and validation of built-in kinds, and of custom kinds without a
// Schema, and admission, but for what [Server.Admit] does, and rights, but for what [Server.Allow]
// and Scenario.Rights refuse. It knows no timeoutSeconds of a watch, and no unknown fields of these kinds. Answers
// are JSON. A pod with a node ends when an actor deletes it
// without grace, as a [Kubelet] does. A request that a real server serves and this one
// does not fails the test with what to do about it. No request is served twice: HTTP over
// TCP does not do so, and neither does client-go.
//
// # Defects of controllers, and how they show
//
// The tests of the package plant the defects below in a controller with informers,
// a queue and one worker, as it is often written by hand. Each is found within
// seconds.
//
//   - It counts its children in a cache that does not show its own last write, and
//     makes them twice: Check, "has 3 Parts, and never wanted more than 2".
//   - It deletes by a name from the cache, and another object has the name by now.
//     The UID as a precondition avoids it: Check, "not the program's".
//   - It records that a step is done before it is done, and is killed in between:
//     Converged in one of the boundaries of a sweep.
//   - It puts the time into the status, and each write causes the next: Rest.
//   - It logs an error and does not try again: Converged.
//   - It tries again at once: Requests.
//   - It cleans up before its caches are synced, or takes a failed read for absence:
//     Check, "never wanted less than 2".
//   - It writes the object of a name without a look at its owner: Check.
//   - It goes on without a child that it may not write for a while: Converged.
//   - It writes labels, data or a list of containers as a whole, and others had added to them:
//     [KeepsOthers].
//   - It takes the server's defaults for a change, and undoes them: Rest.
//
// The module examples has a reconciler built on controller-runtime
// (examples/foreign) that is put to the same test.
package simtest
