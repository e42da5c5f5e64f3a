package operator_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claim makes a claim of the scenario, and its volume in a zone: the controller of the cluster binds
// them.
func (b *bench) claim(name, zone string) {
	b.Helper()
	b.apply(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %[2]s-%[1]s}, spec: {
  accessModes: [ReadWriteOnce], storageClassName: "", persistentVolumeReclaimPolicy: Retain, capacity: {storage: 1Gi},
  csi: {driver: ebs.csi.aws.com, volumeHandle: %[1]s},
  claimRef: {kind: PersistentVolumeClaim, apiVersion: v1, namespace: %[2]s, name: %[1]s},
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [
    {key: topology.kubernetes.io/zone, operator: In, values: [%[3]s]}]}]}}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %[1]s, namespace: %[2]s}, spec: {
  accessModes: [ReadWriteOnce], storageClassName: "", volumeName: %[2]s-%[1]s, resources: {requests: {storage: 1Gi}}}}
`, name, b.name, zone))
	b.eventually("claim "+name+" is bound", func() bool {
		c, err := b.kube.CoreV1().PersistentVolumeClaims(b.name).Get(b.Context(), name, metav1.GetOptions{})
		require.NoError(b, err)
		return c.Status.Phase == corev1.ClaimBound
	})
}

// mounts is the rest of a pod with a claim.
func mounts(claim string) string {
	return fmt.Sprintf(", volumes: [{name: v, persistentVolumeClaim: {claimName: %s}}]", claim)
}

// attachesVolumes has a pod whose volume is in the zone of one machine, one whose volume is where no
// machine on standby is, and one whose claim is made later.
func attachesVolumes(b *bench) {
	b.class()
	b.pool("poolSize: 4, minStandby: 1, " + b.template(", labels: {volumes: any}"))
	b.standby(1)
	zoneOf := func(n corev1.Node) string { return n.Labels[corev1.LabelTopologyZone] }
	near := zoneOf(b.in("standby")[0])
	var far string
	for _, zone := range b.zones() {
		if zone != near {
			far = zone
		}
	}
	require.NotEmpty(b, far)
	// The zone of the standby machine would be the first choice.
	b.claim("far", far)
	b.pods(names("far", 1), "cpu: 1", mounts("far"))
	b.eventually("its machine runs", func() bool { return b.bound() == 1 })
	running := b.in("running")
	require.Len(b, running, 1)
	require.Equal(b, far, zoneOf(running[0]), "it was launched where the volume is")

	b.pods(names("near", 1), "cpu: 1", mounts("near"))
	b.eventReported("Pod", "near-00", "NoMachineFits")
	require.Equal(b, []string{"no machine is started for it: claim near does not exist"}, b.noMachineFits("near-00"))
	require.Len(b, b.in("running"), 1, "for a pod whose claim is missing")
	b.claim("near", near)
	b.eventually("it runs, too", func() bool { return b.bound() == 2 })
	require.True(b, slices.ContainsFunc(b.in("running"), func(n corev1.Node) bool { return zoneOf(n) == near }))

	b.claim("nowhere", "mars-1a")
	b.pods(names("nowhere", 1), "cpu: 1", mounts("nowhere"))
	b.eventReported("Pod", "nowhere-00", "NoMachineFits")
	note := strings.Join(b.noMachineFits("nowhere-00"), "; ")
	require.Contains(b, note, "claim nowhere is attachable only where topology.kubernetes.io/zone in mars-1a")
}

// zones are those of the subnets of the class.
func (b *bench) zones() (zones []string) {
	b.Helper()
	out, err := b.ec2.DescribeSubnets(b.Context(), &ec2.DescribeSubnetsInput{SubnetIds: b.subnets})
	require.NoError(b, err)
	for _, s := range out.Subnets {
		zones = append(zones, *s.AvailabilityZone)
	}
	return zones
}

// provisionsSlowly has a pod whose volume is made only after its machine has been without a pod for
// longer than an empty machine is kept: the scheduler has chosen it, and binds the pod afterwards.
func provisionsSlowly(b *bench) {
	b.class()
	b.pool("poolSize: 1, minStandby: 1, scaleDown: {emptyNodeTTL: 2s}")
	b.standby(1)
	b.apply(fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %[1]s},
  provisioner: ebs.csi.aws.com, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: slow, namespace: %[1]s}, spec: {accessModes: [ReadWriteOnce], storageClassName: %[1]s, resources: {requests: {storage: 1Gi}}}}
`, b.name))
	b.pods(names("slow", 1), "cpu: 1", mounts("slow"))
	chosen := func() string {
		c, err := b.kube.CoreV1().PersistentVolumeClaims(b.name).Get(b.Context(), "slow", metav1.GetOptions{})
		require.NoError(b, err)
		return c.Annotations["volume.kubernetes.io/selected-node"]
	}
	b.eventually("its machine is chosen", func() bool { return chosen() != "" })
	require.Zero(b, b.bound())
	require.Never(b, func() bool { return len(b.in("running")) != 1 }, 10*time.Second, 100*time.Millisecond, "it is not empty")
	b.apply(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %[1]s-slow}, spec: {
  accessModes: [ReadWriteOnce], storageClassName: %[1]s, persistentVolumeReclaimPolicy: Retain, capacity: {storage: 1Gi},
  csi: {driver: ebs.csi.aws.com, volumeHandle: slow}, claimRef: {kind: PersistentVolumeClaim, apiVersion: v1, namespace: %[1]s, name: slow}}}
`, b.name))
	b.eventually("it runs", func() bool { return b.bound() == 1 })
	require.Equal(b, chosen(), b.in("running")[0].Name)
	b.removePods("slow-00")
	b.eventually("its machine is stopped", func() bool { return len(b.in("standby")) == 1 })
}
