// Package kubetest starts a real Kubernetes for tests and demos, without a
// container engine: etcd and kube-apiserver, and on demand the controller
// manager, the scheduler and simulated nodes (kwok), as child processes on free
// loopback ports. It fits tests of any program, whatever that is built on.
//
// A test has a cluster of its own by one line:
//
//	cluster := kubetest.Start(t, kubetest.Options{})
//
// The tests of a package have one together, which the first of them starts:
//
//	var shared kubetest.Shared
//
//	func TestMain(m *testing.M) { shared.Main(m) }
//
// and cluster := shared.Cluster(t) in each test. Config of a [Cluster] is for
// clients; [Cluster.Apply] and [Cluster.Kubectl] are what kubectl is; and
// [Cluster.Requests] are what a user has really sent, by the audit log.
//
// The programs come from the folder that KUBEBUILDER_ASSETS names by its
// absolute path, when set. What that folder lacks is built from Go modules,
// whose versions are part of this package, once, into a cache folder keyed by
// version ([BuildAssets]). The first build takes 4 to 8 minutes on two cores,
// needs the go command and a module proxy, and tells its progress. That may be
// more than the ten minutes that go test allows with the tests: "trueup cluster
// --build" builds it before. Later starts find it done and need neither.
//
// Any number of clusters may run side by side, in one process or in several.
// A cluster ends with its test. Its processes also end when the test binary is
// killed (parent-death signal, Linux), and the folder it leaves behind then is
// removed by the next start on that machine. It needs a Unix.
package kubetest
