// Command peers measures package apply beside its peers: the same objects, the
// same real kube-apiserver, the same run. It prints a line for each figure,
//
//	figure NAME VALUE UNIT
//
// where NAME is whose figure it is, a dot, and what it is; and at the end a
// Markdown table of the marks that apply has set itself. It fails when one is
// missed that does not depend on the machine: a request or an allocation too
// many. Times are told as they are.
//
//	make bench-apply
//	make bench-apply BENCHFLAGS='-stages rest -objects 1000'
//
// # The work
//
// The objects are those of package benchobjects, a mix that holds what is known
// to keep others busy at rest. Each contender has copies of its own, in a
// namespace of its own, and a client without a limit of its own (QPS -1). Requests
// are counted below the client; lists and watches, by which caches are kept up
// to date, are counted apart. A pass before the first counted one warms clients,
// caches and server. Rounds of the peers at rest, and of all when they create, take turns and
// begin with another contender each time, so that a server that becomes warm or slow favours no
// contender. What is printed is the median; a ratio of rates of creation is taken within a round.
// At rest trueup comes first, among more objects than the peers have: it sends no request, so that the
// server does not matter to it; its ratio to a peer is one of two medians.
//
// # The contenders
//
// Each is called as its documentation, or the best known program that is built
// on it, calls it, with every advantage that this offers.
//
//   - trueup: [apply.Applier.Apply] with its defaults (8 writes at once), a synced
//     Live, and a Set that is made once for each desired state. Where objects are
//     created, making the Set is part of the time.
//   - flux_4: ssa.ResourceManager.ApplyAll, the engine of Flux, as
//     kustomize-controller calls it: concurrency 4, which is the default of its
//     flag --concurrent-ssa, objects through normalize.UnstructuredList first, a
//     client without a cache. flux_1 is the default of the package itself.
//   - plain_8, plain_1: one server-side apply for each object, 8 at a time or one
//     after the other, with bodies that were encoded before and answers that
//     are not decoded. This is no library but the least that one request for each
//     object can cost.
//   - CreateOrUpdate: controllerutil.CreateOrUpdate of controller-runtime with typed
//     objects and a client that reads from a synced cache, which holds only the
//     contender's own objects. The closure writes the spec over the live one, as
//     operators do, but spares what others decide: replicas that are not stated,
//     cluster IPs, immutable claim templates, keys of maps. Secrets are given as
//     data. CreateOrUpdate_derivative compares before (equality.Semantic.DeepDerivative) and
//     leaves a spec alone that has all that is wanted: few updates at rest, and it does not see
//     what another has added.
//   - wrangler_canonical, wrangler_0.1: Apply of rancher/wrangler with informers that
//     are synced and indexed, its own rate limit lifted; see the program in folder
//     wrangler. Once with quantities as the server writes them, once with those of
//     the other contenders. It runs after the others, on the same server.
//   - informer and the like: a cache of controller-runtime that holds typed objects,
//     or metadata only; stripped, without managedFields, as its documentation
//     advises who needs to save memory.
//
// # Operators
//
// The stage parts runs two operators side by side, each with 8 workers and parents of
// its own, of ten children each, one of each form of the mix. What a parent wants is
// made once for each of its generations.
//
//   - trueup: a kube.Controller for the parents, one Live and one Applier for all
//     children. A pass is an Apply and a Prune of the part.
//   - CreateOrUpdate: a Manager of controller-runtime with a controller that owns the
//     kinds of the children, reads from its cache, and calls CreateOrUpdate for one child
//     after the other, with the closures of CreateOrUpdate_derivative. The usual closures would
//     update seven of ten children in each pass.
//
// Children are created in rounds that take turns, measured from the first parent until
// the controller had a successful pass for each. A round begins when the other operator
// is silent: one on CreateOrUpdate updates for a while what it has just created. A
// restart is a new view, or cache, on the same server. The prune beside many parts, and
// the memory of a child, are measured with copies of one child that this program serves.
//
// The server has the same cores as the operators, so the processor time for a child decides the
// rate. It is printed for this process (_self, with the creation of the parents), kube-apiserver
// and etcd. With -delay each request takes that much longer, as on a server that is
// farther away or waits for its disk: then it counts how many are under way. The stage requests,
// which runs when it is named, creates the mix in the ways of the contenders, and tells what the
// server pays for each.
//
// The stage embedded runs two operators in one Manager, of parents with a status and ten
// children that are ready without a controller of Kubernetes: five ConfigMaps, three Secrets and
// two Services. Memory is measured in a process for each, with the real server.
//
//   - trueup: package controllerruntime.
//   - CreateOrUpdate: a controller as above, with a finalizer and a condition. Its cache of the
//     children has its own namespace alone.
//
// # Growth
//
// The stage growth, which only make bench-growth runs, measures what an object costs among 1,000,
// 10,000, 100,000 and 1,000,000 of them (-grown-to), each size in a process of its own. The objects
// are the same at each size, and small, so that a million of them fits into 8 GiB: of ten, five are
// ConfigMaps of one key, two Secrets, two Services and one a Deployment, in 100 namespaces. They are
// served by this program in another process, which neither time nor memory is counted of: it streams
// lists and watches, applies, and deletes under preconditions, with copies of what the real server has
// made of one object of each kind. The same process is also measured on the real server (figures
// growth_real_), with -grown-real objects at the most.
//
// Times are CPU times of the process by getrusage, with the collector and the kernel, because the
// machine has other work: the median of 7 rounds of 0.1 s or more each, fewer of what takes longer than 4 s in all.
// Memory is that of the process by /proc/self/status after a collection that gives memory back,
// without what it had before the first object; few objects are held several times at once.
//
//   - growth_sweep_us: a pass over all objects, all unchanged. No request is allowed. growth_sweep_cold_us
//     is the same after the caches of the processor were filled with something else.
//   - growth_restart_us: a new view with its lists, and its first pass. No other request is allowed.
//   - growth_prune_us: a prune of one object in a thousand, for each object that there is, by a guard
//     that has seen no deletion within the hour. Exactly these are deleted, and then made again,
//     which is not measured. growth_prune_nothing_us is the prune of nothing that each pass does.
//   - growth_memory_bytes: the desired state and the view; growth_memory_view_bytes the view alone.
//     growth_memory_peak_bytes is the most that a process of its own had until its first pass was done, with its garbage.
//   - growth_parts_: a part for each of 100 to 100,000 parents of ten children. pass is an Apply and a
//     Prune of a parent, in random order; pass_same the same for 100 of all parents, over and over;
//     prune that of one child of a parent, with its request; memory is for each child.
//   - growth_flux_, growth_informer_: ApplyAll of flux at rest, and a cache of controller-runtime.
//
// Figures end with the size. Those that end with _ratio compare the largest with the smallest.
// -grown-profiles FOLDER writes a CPU profile for each time.
//
// # What the figures are not
//
// A sweep of the peers that send requests is as fast as the server, which runs on
// the same machine. Allocations of a peer are all that its process makes, which
// includes those of its HTTP client: that is what a program pays. Drift is
// repaired by flux, by a plain loop and by wrangler when their caller next calls
// them, so that is not measured; CreateOrUpdate_derivative is, in an operator that watches what
// it makes and has 8 workers. Our loop has all the edited objects in one Set: its time has a pass over
// them. Memory is measured with copies
// of one object, which this program serves itself: that many on a real server
// would take longer than all the rest.
package main
