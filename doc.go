// Package trueup is the front page of an SDK for programs that make the world
// match a desired state: a control plane decides, agents and operators
// converge. It holds no code. Import the packages below it, each for itself;
// each brings only what it needs.
//
// # Packages
//
//   - [github.com/seed-9e1ffd66/trueup/reconcile]: loops, keyed queues, ordered
//     steps, backoff and lifecycle. Standard library only.
//   - [github.com/seed-9e1ffd66/trueup/reconcile/operator]: a whole operator from
//     a type and a function that returns its children. Begin here.
//   - [github.com/seed-9e1ffd66/trueup/reconcile/kube]: the Kubernetes side of an
//     operator: a controller with read-your-writes, finalizers, status, leader
//     election on a Lease, and names that fit and never collide.
//   - [github.com/seed-9e1ffd66/trueup/reconcile/external]: what an object has
//     outside of the cluster: recorded, marked, made and removed in order.
//   - [github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest]: a real
//     Kubernetes, without a container engine. For tests.
//   - [github.com/seed-9e1ffd66/trueup/reconcile/simtest]: a simulated API server,
//     clock and network, in which a controller of any make is killed and misled.
//     For tests.
//   - [github.com/seed-9e1ffd66/trueup/diff]: whether a Kubernetes object is still
//     as its owner applied it, and whether it is as wanted now; what differs and
//     who did it; plans. Pure.
//   - [github.com/seed-9e1ffd66/trueup/apply]: makes a cluster match a set of
//     objects, repairs drift, and deletes what no longer belongs.
//   - [github.com/seed-9e1ffd66/trueup/apply/readiness]: whether a live object is
//     as stated, and why not, by the rules of kstatus.
//   - [github.com/seed-9e1ffd66/trueup/apply/budget]: bounds the requests of a
//     process to one API server.
//   - [github.com/seed-9e1ffd66/trueup/apply/applytest]: stands between a program
//     and an API server, counts what is sent and makes it go wrong. For tests.
//   - [github.com/seed-9e1ffd66/trueup/statesync]: carries desired state from a
//     change log to any number of readers, over HTTP or in process.
//   - [github.com/seed-9e1ffd66/trueup/statesync/statesynctest]: whether a store,
//     a server or a reader keeps what it promises. For tests.
//   - [github.com/seed-9e1ffd66/trueup/snapshot]: one record of each thing for
//     each period, delivered once by identity, over outages and restarts.
//   - [github.com/seed-9e1ffd66/trueup/cloud]: keeps a pool of machines as large
//     as pods need it. Pure but for its executor; standard library only.
//   - [github.com/seed-9e1ffd66/trueup/cloud/demand]: which machines pods need, by
//     the rules of the Kubernetes scheduler.
//   - [github.com/seed-9e1ffd66/trueup/cloud/kube]: reads Pods and Nodes for it.
//   - [github.com/seed-9e1ffd66/trueup/cloud/kube/nodes]: keeps the machines of a
//     pool as Nodes: states, drains, taints.
//   - [github.com/seed-9e1ffd66/trueup/cloud/kube/pools]: runs pools of machines:
//     starts for pods that wait, the pass of a pool.
//   - [github.com/seed-9e1ffd66/trueup/cloud/kube/buffers]: keeps standby machines
//     for CapacityBuffers.
//   - [github.com/seed-9e1ffd66/trueup/cloud/local]: processes of this machine as
//     machines, and the example of a provider.
//   - [github.com/seed-9e1ffd66/trueup/cloud/cloudtest]: a cloud in memory, and
//     whether a provider keeps what it promises. For tests.
//   - [github.com/seed-9e1ffd66/trueup/ops]: the alerts of the programs, as rule
//     files of Prometheus.
//
// These are in modules of their own:
//
//   - github.com/seed-9e1ffd66/trueup/reconcile/controllerruntime: an operator
//     inside a Manager of controller-runtime, by one call.
//   - github.com/seed-9e1ffd66/trueup/reconcile/operatormetrics: the metrics of an
//     operator, for Prometheus.
//   - github.com/seed-9e1ffd66/trueup/reconcile/tracing: OpenTelemetry spans of
//     passes, requests, and changes from commit to apply.
//   - github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream: the simulated
//     API server with apply, patches and protobuf by the code of a real one.
//   - github.com/seed-9e1ffd66/trueup/statesync/sqlstore: a change log inside your
//     SQLite or PostgreSQL transaction; its packages pgxtx and pgxlisten are for
//     pgx.
//   - github.com/seed-9e1ffd66/trueup/cloud/aws: EC2 as a provider of machines.
//
// The programs under cmd and examples put them together into systems that run.
//
// # Ideas
//
// Everything here follows from seven of them.
//
//  1. Level-driven. Every pass compares the whole desired state with the whole
//     actual state. An event only makes a pass start early; nothing is correct
//     only because an event arrived.
//  2. Nothing changed, nothing sent. At rest a pass makes no request and no
//     write, whatever the number of objects.
//  3. Deletion is the dangerous verb. It needs proof that the desired state is
//     complete, a cap, and a UID precondition. An error, an empty answer, a cut
//     stream or an unknown identity never deletes anything.
//  4. Plans are pure, executors are thin. Deciding takes values and returns
//     values: no context, clock, I/O or goroutine.
//  5. Killed anywhere, rerun, same end. Every step can be repeated and resumed.
//  6. One failure stays one failure. A poison object never blocks its
//     neighbours; work on many things returns what happened to each.
//  7. The consumer stays in control. Configuration is a struct whose zero value
//     works. No globals, no init, no logging that was not asked for, and a bound
//     on what each import drags in.
//
// # Modules
//
// The module github.com/seed-9e1ffd66/trueup is the SDK. What needs a cloud SDK,
// a SQL driver, controller-runtime or a command-line library lies in a module of its
// own, which only its users download: those above, cmd and examples.
// The root module never requires one of them.
//
// # Stability
//
// No version is released yet, and the API may change with every commit.
// After the first release, CHANGELOG.md lists each incompatible change with the
// old and the new call.
// Packages under internal and the module cmd make no promise at all.
package trueup
