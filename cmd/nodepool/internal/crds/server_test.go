package crds_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/crds"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// pool and class are the least that is right; more is what comes beside it.
func pool(name, template, more string) string {
	return object(
		"NodePool",
		name,
		"{poolSize: 5, minStandby: 3, template: {nodeClassRef: {kind: AWSNodeClass, name: c}"+template+"}"+more+"}",
	)
}

func class(name, more string) string {
	return object(
		"AWSNodeClass",
		name,
		"{bootstrapTemplate: AL2023, instanceType: m5.large, architecture: x86_64, subnetIds: [subnet-1], securityGroupIds: [sg-1], role: node"+more+"}",
	)
}

func object(kind, name, spec string) string {
	return fmt.Sprintf("{apiVersion: stratos.sh/v1alpha1, kind: %s, metadata: {name: %s}, spec: %s}\n---\n", kind, name, spec)
}

// TestTheServerTakesTheDefinitions is the part of B2, B3 and D10 that the API server
// decides.
func TestTheServerTakesTheDefinitions(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	definitions, err := crds.YAML()
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), string(definitions)))
	_, err = cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=300s", "crd", "--all")
	require.NoError(t, err)

	t.Run("defaults", func(t *testing.T) {
		t.Parallel()
		require.NoError(
			t,
			cluster.Apply(t.Context(), pool("least", "", "")+class("least", ", blockDeviceMappings: [{deviceName: /dev/xvda, volumeSize: 20}]")),
		)
		spec := func(kind string) string {
			out, err := cluster.Kubectl(t.Context(), "get", kind, "least", "-o", "jsonpath={.spec}")
			require.NoError(t, err)
			return out
		}
		for _, name := range []string{"np", "npool", "nodepools.stratos.sh"} {
			require.JSONEq(t, `{"poolSize":5,"minStandby":3,"unreadyTimeout":"15m","reconciliationInterval":"30s",
				"template":{"nodeClassRef":{"kind":"AWSNodeClass","name":"c"},"startupTaintRemoval":"WhenNetworkReady","networkReadinessStrategy":"Taint"},
				"preWarm":{"timeout":"10m","timeoutAction":"stop","completionMode":"SelfStop","imagePullPolicy":"Required"},
				"scaleDown":{"enabled":true,"emptyNodeTTL":"5m","drainTimeout":"5m"}}`, spec(name))
		}
		for _, name := range []string{"awsnc", "awsnodeclasses.stratos.sh"} {
			require.JSONEq(
				t,
				`{"bootstrapTemplate":"AL2023","instanceType":"m5.large","architecture":"x86_64","subnetIds":["subnet-1"],"securityGroupIds":["sg-1"],"role":"node",
				"metadataOptions":{"httpEndpoint":"enabled","httpTokens":"required","httpPutResponseHopLimit":2},
				"blockDeviceMappings":[{"deviceName":"/dev/xvda","volumeSize":20}]}`,
				spec(name),
			)
		}
		// A program that reads one and writes it back changes nothing.
		var typed v1alpha1.NodePool
		out, err := cluster.Kubectl(t.Context(), "get", "np", "least", "-o", "json")
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal([]byte(out), &typed))
		written, err := json.Marshal(typed.Spec)
		require.NoError(t, err)
		var again, before v1alpha1.NodePoolSpec
		require.NoError(t, json.Unmarshal(written, &again))
		require.NoError(t, json.Unmarshal([]byte(spec("np")), &before))
		require.Equal(t, before, again)
		require.Equal(t, "30s", typed.Spec.ReconciliationInterval.Duration.Duration.String())
	})
	t.Run("columns", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, cluster.Apply(t.Context(), pool("columns", "", "")+class("columns", "")))
		out, err := cluster.Kubectl(t.Context(), "get", "np", "columns")
		require.NoError(t, err)
		require.Equal(
			t,
			[]string{"NAME", "POOLSIZE", "MINSTANDBY", "STANDBY", "RUNNING", "READY", "AGE"},
			strings.Fields(strings.SplitN(out, "\n", 2)[0]),
		)
		out, err = cluster.Kubectl(t.Context(), "get", "awsnc", "columns")
		require.NoError(t, err)
		require.Equal(t, []string{"NAME", "TYPE", "IMAGE", "POOLS", "VALID", "AGE"}, strings.Fields(strings.SplitN(out, "\n", 2)[0]))
		// The server publishes the schema some time after the definition is established.
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			out, err := cluster.Kubectl(t.Context(), "explain", "nodepool.spec.template.taints.key")
			require.NoError(c, err)
			require.Contains(c, out, "Key of the taint, such as dedicated or example.com/team.")
		}, 5*time.Minute, 500*time.Millisecond)
	})
	t.Run("what is right", func(t *testing.T) {
		t.Parallel()
		for n, right := range []string{
			pool("right-0", ", labels: {team: a, example.com/team: '', node-role.kubernetes.io/worker: ''}, taints: [{key: dedicated, value: a, effect: NoSchedule}, {key: example.com/x, effect: NoExecute}], startupTaints: [{key: node.cilium.io/agent-not-ready, value: 'true', effect: NoSchedule}], startupTaintRemoval: External, networkReadinessStrategy: None", ""),
			pool("right-1", "", ", preWarm: {timeout: 30s, timeoutAction: terminate, completionMode: ControllerStop, imagePullPolicy: BestEffort, imagesToPull: [nginx, 'registry.example.com:5000/a/b_c@sha256:0123', 'a/b:1.2-x']}, scaleUp: {defaultPodResources: {requests: {cpu: 100m, memory: 1Gi, nvidia.com/gpu: 0, ephemeral-storage: 1}}}"),
			pool("right-2", "", ", maxNodeRuntime: 1h30m, unreadyTimeout: 30s, reconciliationInterval: 5s, scaleDown: {enabled: false, emptyNodeTTL: 1.5h, drainTimeout: 0s, surplusStandbyTTL: 500ms}"),
			pool("right-4", "", ", weight: 100, disruption: {consolidateAfter: 30s, budgets: [{nodes: '0', schedule: '0 9 * * mon-fri', duration: 8h}, {nodes: 100%}, {nodes: '20'}]}"),
			object("NodePool", "right-3", "{poolSize: 1000, minStandby: 1000, template: {nodeClassRef: {kind: AWSNodeClass, name: c.example.com}}}"),
			object("NodePool", strings.Repeat("a", 63), "{poolSize: 1, minStandby: 0, template: {nodeClassRef: {kind: AWSNodeClass, name: c}}}"),
			object("AWSNodeClass", "right-5", "{bootstrapTemplate: Bottlerocket, region: us-gov-west-1, instanceType: u-6tb1.112xlarge, architecture: arm64, amiSelector: {tags: {a: '*'}, name: 'bottlerocket-*', owner: '123456789012'}, subnetSelector: {Name: '*'}, securityGroupSelector: {a: b}, iamInstanceProfile: 'arn:aws:iam::123456789012:instance-profile/node', customUserData: '[settings.host-containers.admin]'}"),
			class("right-6", ", kubelet: {maxPods: 58, nodeLabels: {team: a, node.kubernetes.io/x: b}, nodeTaints: [{key: a, effect: NoSchedule}], extraArgs: {v: '4', cpu-manager-policy: static, eviction-hard: 'memory.available<100Mi'}}, customUserData: \"#!/bin/sh\\ntrue\", tags: {a: b}, metadataOptions: {httpTokens: optional, instanceMetadataTags: enabled}"),
			class("right-7", ", amiSelector: {name: mine}, blockDeviceMappings: [{deviceName: /dev/xvda, volumeSize: 1, volumeType: gp3, encrypted: true, iops: 3000, throughput: 125}, {deviceName: /dev/xvdb, volumeSize: 100, volumeType: io2, iops: 1000}]"),
		} {
			require.NoError(t, cluster.Apply(t.Context(), right), n)
		}
		_, err := cluster.Kubectl(t.Context(), "delete", "np,awsnc", "-l", "!none", "--field-selector=metadata.name=right-0", "--timeout=60s")
		require.NoError(t, err, "no finalizer comes by default")
	})

	for why, c := range map[string]struct{ object, message string }{
		// D10
		"more standby than machines": {object("NodePool", "p", "{poolSize: 5, minStandby: 6, template: {nodeClassRef: {kind: AWSNodeClass, name: c}}}"), "minStandby must be at most poolSize"},
		"no machines":                {object("NodePool", "p", "{poolSize: 0, minStandby: 0, template: {nodeClassRef: {kind: AWSNodeClass, name: c}}}"), "spec.poolSize in body should be greater than or equal to 1"},
		"1001 machines":              {object("NodePool", "p", "{poolSize: 1001, minStandby: 0, template: {nodeClassRef: {kind: AWSNodeClass, name: c}}}"), "spec.poolSize in body should be less than or equal to 1000"},
		"less than none":             {object("NodePool", "p", "{poolSize: 1, minStandby: -1, template: {nodeClassRef: {kind: AWSNodeClass, name: c}}}"), "spec.minStandby in body should be greater than or equal to 0"},
		"a label of ours":            {pool("p", ", labels: {stratos.sh/x: a}", ""), "must not have a key below stratos.sh/"},
		"a taint of ours":            {pool("p", ", taints: [{key: stratos.sh/standby, effect: NoSchedule}]", ""), "key must not be below stratos.sh/"},
		"a startup taint of ours":    {pool("p", ", startupTaints: [{key: stratos.sh/not-ready, effect: NoSchedule}]", ""), "key must not be below stratos.sh/"},
		"an unknown action":          {pool("p", "", ", preWarm: {timeoutAction: delete}"), `spec.preWarm.timeoutAction: Unsupported value: "delete": supported values: "stop", "terminate"`},
		"an unknown mode":            {pool("p", "", ", preWarm: {completionMode: Auto}"), `supported values: "SelfStop", "ControllerStop"`},
		"an unknown policy":          {pool("p", "", ", preWarm: {imagePullPolicy: Always}"), `supported values: "Required", "BestEffort"`},
		"an unknown removal":         {pool("p", ", startupTaintRemoval: Never", ""), `supported values: "WhenNetworkReady", "External"`},
		"an unknown strategy":        {pool("p", ", networkReadinessStrategy: Label", ""), `supported values: "Taint", "None"`},
		"an unknown effect":          {pool("p", ", taints: [{key: a, effect: Evict}]", ""), `spec.template.taints[0].effect: Unsupported value: "Evict"`},
		"an unknown kind":            {object("NodePool", "p", "{poolSize: 1, minStandby: 0, template: {nodeClassRef: {kind: GCPNodeClass, name: c}}}"), `spec.template.nodeClassRef.kind: Unsupported value: "GCPNodeClass": supported values: "AWSNodeClass"`},
		// the rest of B2
		"no size":             {object("NodePool", "p", "{minStandby: 0, template: {nodeClassRef: {kind: AWSNodeClass, name: c}}}"), "spec.poolSize: Required value"},
		"no standby":          {object("NodePool", "p", "{poolSize: 1, template: {nodeClassRef: {kind: AWSNodeClass, name: c}}}"), "spec.minStandby: Required value"},
		"no template":         {object("NodePool", "p", "{poolSize: 1, minStandby: 0}"), "spec.template: Required value"},
		"no class":            {object("NodePool", "p", "{poolSize: 1, minStandby: 0, template: {}}"), "spec.template.nodeClassRef: Required value"},
		"no name of a class":  {object("NodePool", "p", "{poolSize: 1, minStandby: 0, template: {nodeClassRef: {kind: AWSNodeClass}}}"), "spec.template.nodeClassRef.name: Required value"},
		"a long name":         {pool(strings.Repeat("a", 64), "", ""), "metadata.name must have at most 63 characters"},
		"a taint without key": {pool("p", ", taints: [{effect: NoSchedule}]", ""), "spec.template.taints[0].key: Required value"},
		"a taint's empty key": {pool("p", ", startupTaints: [{key: '', effect: NoSchedule}]", ""), "spec.template.startupTaints[0].key"},
		"a taint's bad value": {pool("p", ", taints: [{key: a, value: 'a b', effect: NoSchedule}]", ""), "spec.template.taints[0].value"},
		"a bad label":         {pool("p", ", labels: {a b: c}", ""), "must have keys that are names of labels, such as team or example.com/team"},
		"a bad label value":   {pool("p", ", labels: {a: 'b c'}", ""), "must be letters, digits, -, _ and ., with a letter or digit at both ends"},
		"a long label value":  {pool("p", ", labels: {a: "+strings.Repeat("a", 64)+"}", ""), "spec.template.labels.a: Too long: may not be more than 63"},
		"no image":            {pool("p", "", ", preWarm: {imagesToPull: ['']}"), "spec.preWarm.imagesToPull[0]"},
		"a command as image":  {pool("p", "", ", preWarm: {imagesToPull: ['$(reboot)']}"), "spec.preWarm.imagesToPull[0]"},
		"no time span":        {pool("p", "", ", preWarm: {timeout: ten minutes}"), "must be a time span such as 30s, 5m or 1h30m"},
		"a bare number":       {pool("p", "", ", preWarm: {timeout: '600'}"), "must be a time span such as 30s, 5m or 1h30m"},
		"a number":            {pool("p", "", ", preWarm: {timeout: 600}"), ".spec.preWarm.timeout: expected string"},
		"a negative span":     {pool("p", "", ", scaleDown: {emptyNodeTTL: -5m}"), "spec.scaleDown.emptyNodeTTL: Invalid value"},
		"days":                {pool("p", "", ", maxNodeRuntime: 7d"), "must be a time span such as 30s, 5m or 1h30m"},
		"an endless span":     {pool("p", "", ", scaleDown: {drainTimeout: 9999999h}"), "spec.scaleDown.drainTimeout: Invalid value"},
		"a bad surplus span":  {pool("p", "", ", scaleDown: {surplusStandbyTTL: soon}"), "spec.scaleDown.surplusStandbyTTL: Invalid value"},
		"a short warm-up":     {pool("p", "", ", preWarm: {timeout: 29s}"), "spec.preWarm.timeout: Invalid value: \"29s\": must be at least 30s"},
		"a short run":         {pool("p", "", ", maxNodeRuntime: 59s"), "spec.maxNodeRuntime: Invalid value: \"59s\": must be at least 1m"},
		"a heavy pool":        {pool("p", "", ", weight: 101"), "spec.weight: Invalid value: 101: spec.weight in body should be less than or equal to 100"},
		"a hasty move":        {pool("p", "", ", disruption: {consolidateAfter: 29s}"), "spec.disruption.consolidateAfter: Invalid value: \"29s\": must be at least 30s"},
		"a negative request":  {pool("p", "", ", scaleUp: {defaultPodResources: {requests: {cpu: '-1'}}}"), "spec.scaleUp.defaultPodResources.requests: Invalid value: must not be negative"},
		"a negative number":   {pool("p", "", ", scaleUp: {defaultPodResources: {requests: {memory: -5}}}"), "must not be negative"},
		"a wrong share":       {pool("p", "", ", disruption: {budgets: [{nodes: 101%}]}"), "spec.disruption.budgets[0].nodes: Invalid value: \"101%\""},
		"a budget of none":    {pool("p", "", ", disruption: {budgets: [{}]}"), "spec.disruption.budgets[0].nodes: Required value"},
		"a time without end":  {pool("p", "", ", disruption: {budgets: [{nodes: '1', schedule: '@daily'}]}"), "schedule and duration must be set together"},
		"a time without one":  {pool("p", "", ", disruption: {budgets: [{nodes: '1', duration: 1h}]}"), "schedule and duration must be set together"},
		"a blink":             {pool("p", "", ", disruption: {budgets: [{nodes: '1', schedule: '@daily', duration: 59s}]}"), "must be at least 1m"},
		"a short patience":    {pool("p", "", ", unreadyTimeout: 29s"), "spec.unreadyTimeout: Invalid value: \"29s\": must be at least 30s"},
		"a short interval":    {pool("p", "", ", reconciliationInterval: 1s"), "spec.reconciliationInterval: Invalid value: \"1s\": must be at least 5s"},
		"no quantity":         {pool("p", "", ", scaleUp: {defaultPodResources: {requests: {cpu: much}}}"), "spec.scaleUp.defaultPodResources.requests.cpu"},
		"an unknown field":    {pool("p", "", ", minStandBy: 3"), ".spec.minStandBy: field not declared in schema"},
		// B3
		"two subnet sources":      {class("c", ", subnetSelector: {a: b}"), "exactly one of subnetIds and subnetSelector must be set"},
		"no subnet source":        {object("AWSNodeClass", "c", "{bootstrapTemplate: AL2, instanceType: m5.large, architecture: x86_64, securityGroupIds: [sg-1], role: node}"), "exactly one of subnetIds and subnetSelector must be set"},
		"empty subnets":           {object("AWSNodeClass", "c", "{bootstrapTemplate: AL2, instanceType: m5.large, architecture: x86_64, subnetIds: [], securityGroupIds: [sg-1], role: node}"), "spec.subnetIds in body should have at least 1 items"},
		"an empty subnet tag set": {object("AWSNodeClass", "c", "{bootstrapTemplate: AL2, instanceType: m5.large, architecture: x86_64, subnetSelector: {}, securityGroupIds: [sg-1], role: node}"), "spec.subnetSelector"},
		"a subnet twice":          {object("AWSNodeClass", "c", "{bootstrapTemplate: AL2, instanceType: m5.large, architecture: x86_64, subnetIds: [subnet-1, subnet-1], securityGroupIds: [sg-1], role: node}"), "duplicate"},
		"no subnet's id":          {object("AWSNodeClass", "c", "{bootstrapTemplate: AL2, instanceType: m5.large, architecture: x86_64, subnetIds: [vpc-1], securityGroupIds: [sg-1], role: node}"), "spec.subnetIds[0]"},
		"two group sources":       {class("c", ", securityGroupSelector: {a: b}"), "exactly one of securityGroupIds and securityGroupSelector must be set"},
		"no group source":         {object("AWSNodeClass", "c", "{bootstrapTemplate: AL2, instanceType: m5.large, architecture: x86_64, subnetIds: [subnet-1], role: node}"), "exactly one of securityGroupIds and securityGroupSelector must be set"},
		"two profiles":            {class("c", ", iamInstanceProfile: node"), "exactly one of iamInstanceProfile and role must be set"},
		"no profile":              {object("AWSNodeClass", "c", "{bootstrapTemplate: AL2, instanceType: m5.large, architecture: x86_64, subnetIds: [subnet-1], securityGroupIds: [sg-1]}"), "exactly one of iamInstanceProfile and role must be set"},
		"an unknown template":     {object("AWSNodeClass", "c", "{bootstrapTemplate: Ubuntu, instanceType: m5.large, architecture: x86_64, subnetIds: [subnet-1], securityGroupIds: [sg-1], role: node}"), `spec.bootstrapTemplate: Unsupported value: "Ubuntu": supported values: "AL2023", "AL2", "Bottlerocket"`},
		"no template of boot":     {object("AWSNodeClass", "c", "{instanceType: m5.large, architecture: x86_64, subnetIds: [subnet-1], securityGroupIds: [sg-1], role: node}"), "spec.bootstrapTemplate: Required value"},
		"no type":                 {object("AWSNodeClass", "c", "{bootstrapTemplate: AL2, architecture: x86_64, subnetIds: [subnet-1], securityGroupIds: [sg-1], role: node}"), "spec.instanceType: Required value"},
		"a family as type":        {object("AWSNodeClass", "c", "{bootstrapTemplate: AL2, instanceType: m5, architecture: x86_64, subnetIds: [subnet-1], securityGroupIds: [sg-1], role: node}"), "spec.instanceType"},
		"an unknown architecture": {object("AWSNodeClass", "c", "{bootstrapTemplate: AL2, instanceType: m5.large, architecture: amd64, subnetIds: [subnet-1], securityGroupIds: [sg-1], role: node}"), `spec.architecture: Unsupported value: "amd64": supported values: "x86_64", "arm64"`},
		"a zone as region":        {class("c", ", region: us-east-1a"), "spec.region"},
		"an empty selector":       {class("c", ", amiSelector: {}"), "either id must be set, or at least one of tags and name"},
		"a selector of an owner":  {class("c", ", amiSelector: {owner: self}"), "either id must be set, or at least one of tags and name"},
		"an unknown owner":        {class("c", ", amiSelector: {name: a, owner: me}"), "spec.amiSelector.owner"},
		"no size of a volume":     {class("c", ", blockDeviceMappings: [{deviceName: /dev/xvda}]"), "spec.blockDeviceMappings[0].volumeSize: Required value"},
		"a volume of nothing":     {class("c", ", blockDeviceMappings: [{deviceName: /dev/xvda, volumeSize: 0}]"), "spec.blockDeviceMappings[0].volumeSize in body should be greater than or equal to 1"},
		"an unknown volume":       {class("c", ", blockDeviceMappings: [{deviceName: /dev/xvda, volumeSize: 1, volumeType: ssd}]"), "spec.blockDeviceMappings[0].volumeType: Unsupported value"},
		"a volume twice":          {class("c", ", blockDeviceMappings: [{deviceName: /dev/xvda, volumeSize: 1}, {deviceName: /dev/xvda, volumeSize: 2}]"), "duplicate"},
		"iops of gp2":             {class("c", ", blockDeviceMappings: [{deviceName: /dev/xvda, volumeSize: 1, volumeType: gp2, iops: 100}]"), "iops needs volumeType gp3, io1 or io2"},
		"io2 without iops":        {class("c", ", blockDeviceMappings: [{deviceName: /dev/xvda, volumeSize: 1, volumeType: io2}]"), "volumeType io1 and io2 need iops"},
		"throughput of io2":       {class("c", ", blockDeviceMappings: [{deviceName: /dev/xvda, volumeSize: 1, volumeType: io2, iops: 100, throughput: 125}]"), "throughput needs volumeType gp3"},
		"an unknown token mode":   {class("c", ", metadataOptions: {httpTokens: always}"), "spec.metadataOptions.httpTokens: Unsupported value"},
		"no hop":                  {class("c", ", metadataOptions: {httpPutResponseHopLimit: 0}"), "spec.metadataOptions.httpPutResponseHopLimit"},
		"no pods":                 {class("c", ", kubelet: {maxPods: 0}"), "spec.kubelet.maxPods"},
		"a kubelet's label":       {class("c", ", kubelet: {nodeLabels: {stratos.sh/pool: a}}"), "must not have a key below stratos.sh/"},
		"a role of a node":        {class("c", ", kubelet: {nodeLabels: {node-role.kubernetes.io/worker: ''}}"), "set them in template.labels of the NodePool"},
		"a kubelet's bad label":   {class("c", ", kubelet: {nodeLabels: {a: 'b,c=d'}}"), "must be letters, digits, -, _ and ., with a letter or digit at both ends"},
		"a kubelet's taint":       {class("c", ", kubelet: {nodeTaints: [{key: stratos.sh/x, effect: NoSchedule}]}"), "key must not be below stratos.sh/"},
		"a flag with dashes":      {class("c", ", kubelet: {extraArgs: {--v: '4'}}"), "must have names of flags without dashes before them"},
		"a flag with a space":     {class("c", ", kubelet: {extraArgs: {v: '4 --kubeconfig=/x'}}"), "must be printable ASCII without spaces and quotes"},
		"a flag of ours":          {class("c", ", kubelet: {extraArgs: {node-labels: a=b}}"), "set nodeLabels, nodeTaints, maxPods instead"},
		"a script as TOML":        {object("AWSNodeClass", "c", `{bootstrapTemplate: Bottlerocket, instanceType: m5.large, architecture: x86_64, subnetIds: [subnet-1], securityGroupIds: [sg-1], role: node, customUserData: "#!/bin/sh\ntrue"}`), "customUserData of Bottlerocket must be TOML, not a script"},
		"flags of Bottlerocket":   {object("AWSNodeClass", "c", `{bootstrapTemplate: Bottlerocket, instanceType: m5.large, architecture: x86_64, subnetIds: [subnet-1], securityGroupIds: [sg-1], role: node, kubelet: {extraArgs: {v: '4'}}}`), "set settings.kubernetes in customUserData"},
		"much user data":          {class("c", ", customUserData: "+strings.Repeat("a", 12289)), "spec.customUserData"},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, cluster.Apply(t.Context(), c.object), c.message)
		})
	}
}
