// Command agentjob measures the agent-run operator beside one that is built on
// controller-runtime and does the same work: many AgentJobs with a schedule, which share
// one AgentRuntime, on one real kube-apiserver. It prints a line for each figure,
//
//	figure NAME VALUE UNIT
//
// and fails when a figure is missed that does not depend on the machine: a write too
// many.
//
//	make bench-agentjob
//	make bench-agentjob BENCHFLAGS='-jobs 200 -rounds 1 -rest 10s'
//
// # The work
//
// Each operator has a namespace of its own with the same objects, a process of its own, a
// ServiceAccount of its own, 8 workers, and no limit of its own on requests. For each
// AgentJob it makes an immutable ConfigMap with the rendered config, a ServiceAccount and
// a CronJob, sets a finalizer, and reports phase, hashes, conditions and children in the
// status. References, and the key of the Secret, are resolved and watched. Requests are
// those of the API server's audit log, without lists, watches and what is asked while
// the process starts.
//
//   - create: from the first AgentJob that is asked for until the last status is
//     reported.
//   - converge: the image of the runtime changes, until the last CronJob has it and the
//     last status its hash. The operators take turns; the median of the rounds counts.
//   - memory: the resident memory of each process after a while at rest, of which a good
//     part is the program itself; and for each job what it has grown by since it had none.
//   - wake: the AgentRole of one job changes, from the server's answer until the status
//     has the new hash, one job after the other.
//   - completion: runs without a schedule end, from the server's own record of the end
//     as a watch delivers it until the phase is seen. Of the agent-run operator alone.
//
// # The peer
//
// It is what kubebuilder scaffolds and its book advises: a Manager with typed objects,
// Owns for what it makes, Watches with an indexed field for what is referred to,
// CreateOrUpdate from the cache for each child, a status patch when the status differs.
// It is given what a careful author adds: its caches hold one namespace, children alone
// by their label, and a hash in an annotation spares it the comparison of a pod template
// with the server's defaults. It runs no one-shots, has no pruning beyond old configs, no
// rights and no volumes.
//
// It writes by create and update, and the agent-run operator by server-side apply, which
// leaves the fields of others to them and takes back its own. That costs the API server
// some 2 ms more of processor time for each CronJob: most of what converge differs by.
package main
