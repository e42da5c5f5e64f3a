// Package operator makes an operator of a type and a function that returns the children of an
// object: an [Operator] watches the objects and their children, applies and prunes what the
// function states, repairs what others change, deletes the children before their object goes,
// and says in the conditions of the object, and in Events, how far it is and why not further.
// [Operator.Outside] does the same for things outside of the cluster.
//
// It joins the packages apply, kube and external, and adds no rule of its own about when an object is
// written or deleted. What it does not do is done with these three: an operator that needs
// another order of its steps is built on them directly.
//
// # Conditions
//
// The conditions are Ready, Reconciling and Stalled of kstatus, with one reason from one
// vocabulary ([readiness.Reason], and the Reason constants of package apply):
//
//	Ready              every child is as stated, and ready
//	Progressing        a child is not ready, and nothing is wrong with it
//	InvalidObject      the type cannot hold the object
//	InvalidChildren    the function failed, or stated what cannot be a child
//	NotOurs, Claimed, Forbidden, Invalid, Blocked, ...         a child cannot be applied
//	Quota, Unschedulable, ImagePull, CrashLoop, ...            a child cannot become ready
//	DeletionHeld, NotSynced, RequestFailed, ...                a child cannot be deleted
//	NotOurs, RequestFailed     with the name of a part: [Outside] of the cluster
//
// A cause that only a change ends is Stalled, any other is Reconciling. Of several causes the
// heaviest is reported, in the words of the API server.
//
// A field of a child that another client changes is set back at once. An Event, OverrideUndone, says
// which field of which child it was, and which field manager had changed it; a repetition is counted.
//
// # Failures
//
// A child that is refused delays no other, and no other object. Of an object that the
// type cannot hold, or whose function fails, the children stay as they are. While one child is unknown, none is pruned.
//
// # Deletion
//
// The children go before their object, and a policy after the pods that it isolates: the finalizer stays until then, and the
// status says what it waits for. kubectl delete --cascade=foreground has the garbage collector delete the children at once and
// in no order, the policy before the pods; the default of kubectl leaves the order to the operator.
package operator
