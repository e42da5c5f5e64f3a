// Package controllerruntime runs an operator of package operator inside a Manager of
// sigs.k8s.io/controller-runtime, beside the controllers and webhooks that the Manager has: [Add]
// is the one call. The operator works while the Manager is elected, on its connections, with its
// scheme and its logger. Its Events are those of package kube: the recorder of a Manager counts an
// Event that has the object and the reason of the one before, and drops its note.
//
// # Readiness
//
// The Manager gets a check with the name of the operator at /readyz. It fails while the Manager is
// elected and a kind of the operator is not seen, or a status cannot be written by rights or by its
// definition, and names the kind or the object, and the reason. A standby is ready.
//
// The objects do not come from the cache of the Manager: one object that its type cannot hold ends
// the cache's watch of the whole kind, without an error that a program sees. The operator's own goes
// on, and says in the status of that object what is wrong (InvalidObject). A Manager whose cache has
// some namespaces alone does not narrow what the operator watches: set its Namespace.
//
// # Election
//
// A process that was stopped or suspended for more than five seconds may have lost its election, and a
// Manager notices that up to its RenewDeadline later. The operator writes nothing for fifteen seconds
// then; what it would have written is tried again. With other durations of the Manager than its
// defaults, LeaseDuration must be at least five seconds longer than RenewDeadline, and that at most
// fifteen.
//
// # Metrics
//
// The registry of controller-runtime has the metrics of package operatormetrics while the operator
// works.
package controllerruntime
