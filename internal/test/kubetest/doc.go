// Package kubetest starts a real Kubernetes for tests and demos, without a
// container engine: etcd and kube-apiserver, and on demand the controller
// manager, the scheduler and simulated nodes (kwok), as child processes on free
// loopback ports.
//
// The programs come from the folder that KUBEBUILDER_ASSETS names by its
// absolute path, when set. What that folder lacks is built from the Go modules that internal/kube pins,
// once, into a cache folder keyed by version ([BuildAssets]); the first build
// takes minutes, later ones find it done.
//
// Any number of clusters may run side by side, in one process or in several.
// A cluster ends with its test. Its processes also end when the test binary is
// killed (parent-death signal, Linux), and the folder it leaves behind then is
// removed by the next start on that machine.
package kubetest
