package userdata_test

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/userdata"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func config(bootstrap v1alpha1.BootstrapTemplate) userdata.Config {
	pods := int32(58)
	c := userdata.Config{
		Bootstrap:   bootstrap,
		ClusterName: "test",
		Endpoint:    "https://ABC.gr7.us-east-1.eks.amazonaws.com",
		CA:          base64.StdEncoding.EncodeToString([]byte("certificate")),
		CIDR:        "10.100.0.0/16",
		Labels: map[string]string{
			"stratos.sh/pool":                "p",
			"team":                           "a",
			"node-role.kubernetes.io/worker": "",
			"topology.kubernetes.io/zone":    "us-east-1a",
		},
		Taints: []corev1.Taint{
			{Key: "stratos.sh/not-ready", Value: "true", Effect: corev1.TaintEffectNoSchedule},
			{Key: "dedicated", Effect: corev1.TaintEffectNoExecute},
		},
		Kubelet: v1alpha1.Kubelet{
			MaxPods:    &pods,
			NodeLabels: map[string]string{"team": "of the class", "rack": "r1"},
			NodeTaints: []v1alpha1.Taint{
				{Key: "dedicated", Value: "twice", Effect: corev1.TaintEffectNoExecute},
				{Key: "dedicated", Value: "b", Effect: corev1.TaintEffectNoSchedule},
			},
			ExtraArgs: map[string]string{"v": "4", "eviction-hard": "memory.available<10%"},
		},
		Images: []string{
			"nginx",
			"123456789012.dkr.ecr.eu-west-1.amazonaws.com/app:v1",
			"registry.example.com:5000/a/b@sha256:" + strings.Repeat("0a", 32),
		},
		SelfStop: true,
	}
	c.Kubelet.NodeLabels["team"] = "b"
	if bootstrap == v1alpha1.Bottlerocket {
		c.Images, c.SelfStop, c.Kubelet.ExtraArgs = nil, false, nil
	}
	return c
}

func TestEachTemplateHasItsText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]userdata.Config{
		"al2023": func() userdata.Config {
			c := config(v1alpha1.AL2023)
			c.Custom = "#!/bin/bash\necho first\n"
			return c
		}(),
		"al2023-least": {Bootstrap: v1alpha1.AL2023, ClusterName: "test", Endpoint: "https://example.com/", CA: "Yw==", CIDR: "fd00::/108"},
		"al2": func() userdata.Config {
			c := config(v1alpha1.AL2)
			c.Custom = "#cloud-config\npackages: [jq]\n"
			return c
		}(),
		"al2-least": {Bootstrap: v1alpha1.AL2, ClusterName: "test", Endpoint: "https://example.com", CA: "Yw=="},
		"bottlerocket": func() userdata.Config {
			c := config(v1alpha1.Bottlerocket)
			c.Custom = "[settings.kubernetes]\nmax-pods = 3\nstandalone-mode = false\n[settings.kubernetes.node-labels]\nteam = \"mine\"\n\"example.com/own\" = \"x\"\n" +
				"[settings.kubernetes.node-taints]\ndedicated = [\"own:NoSchedule\", \"b:NoSchedule\"]\n[settings.host-containers.admin]\nenabled = true\n"
			return c
		}(),
		"bottlerocket-least": {Bootstrap: v1alpha1.Bottlerocket, ClusterName: "test", Endpoint: "https://example.com", CA: "Yw=="},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := c.Render()
			require.NoError(t, err)
			require.Empty(t, data.Warning)
			path := filepath.Join("testdata", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(data.Text), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), data.Text)
			for range 20 {
				again, err := c.Render()
				require.NoError(t, err)
				require.Equal(t, data.Text, again.Text, "the same bytes each time")
			}
		})
	}
}

// TestTheUserDataOfTheClassIsKept is the second half of C27.
func TestTheUserDataOfTheClassIsKept(t *testing.T) {
	t.Parallel()
	node := "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  instance:\n    localStorage: {strategy: RAID0}\n"
	document := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\n#!/bin/sh\ntrue\n\n--//\nContent-Type: application/node.eks.aws\n\n" + node + "\n--//--\n"
	for name, row := range map[string]struct {
		custom string
		kinds  []string
		bodies []string
	}{
		"nothing":        {"", nil, nil},
		"blank":          {" \n", nil, nil},
		"a script":       {"#!/bin/sh\necho \"$HOME\" --stratos-\n", []string{"text/x-shellscript"}, []string{"#!/bin/sh\necho \"$HOME\" --stratos-\n"}},
		"other letters":  {"#!/bin/sh\necho grün\n", []string{"text/x-shellscript"}, []string{"#!/bin/sh\necho grün\n"}},
		"a cloud-config": {"#cloud-config\nruncmd: [ls]\n", []string{"text/cloud-config"}, []string{"#cloud-config\nruncmd: [ls]\n"}},
		"a NodeConfig":   {node, []string{"application/node.eks.aws"}, []string{node}},
		"a multipart":    {document, []string{"text/x-shellscript", "application/node.eks.aws"}, []string{"#!/bin/sh\ntrue\n", node}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(v1alpha1.AL2023)
			c.Custom = row.custom
			data, err := c.Render()
			require.NoError(t, err)
			kinds, bodies := split(t, data.Text)
			require.Equal(t, append(row.kinds, "application/node.eks.aws", "text/x-shellscript"), kinds, "what the class says comes first")
			require.Equal(t, append([]string(nil), row.bodies...), append([]string(nil), bodies[:len(bodies)-2]...))
			require.Contains(
				t,
				bodies[len(bodies)-2],
				"- --register-with-taints=stratos.sh/not-ready=true:NoSchedule,dedicated:NoExecute,dedicated=b:NoSchedule\n",
			)
		})
	}
}

// split returns the types and the decoded bodies of a multipart.
func split(tb testing.TB, text string) (kinds, bodies []string) {
	tb.Helper()
	message, err := mail.ReadMessage(strings.NewReader(text))
	require.NoError(tb, err)
	kind, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	require.NoError(tb, err)
	require.Equal(tb, "multipart/mixed", kind)
	reader := multipart.NewReader(message.Body, params["boundary"])
	for {
		p, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return kinds, bodies
		}
		require.NoError(tb, err)
		var body io.Reader = p
		if p.Header.Get("Content-Transfer-Encoding") == "base64" {
			body = base64.NewDecoder(base64.StdEncoding, p)
		}
		content, err := io.ReadAll(body)
		require.NoError(tb, err)
		kind, _, _ := strings.Cut(p.Header.Get("Content-Type"), ";")
		kinds, bodies = append(kinds, kind), append(bodies, string(content))
	}
}

func TestWhatIsWrongIsNamedWithItsCure(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		bootstrap v1alpha1.BootstrapTemplate
		change    func(*userdata.Config)
		message   string
	}{
		"no template":              {"", func(*userdata.Config) {}, `spec.bootstrapTemplate is "": it must be AL2023, AL2 or Bottlerocket`},
		"no name":                  {v1alpha1.AL2023, func(c *userdata.Config) { c.ClusterName = "" }, "cluster-name"},
		"a name of two lines":      {v1alpha1.AL2, func(c *userdata.Config) { c.ClusterName = "a\nb" }, "cluster-name"},
		"no https":                 {v1alpha1.AL2, func(c *userdata.Config) { c.Endpoint = "http://example.com" }, `cluster-endpoint is "http://example.com": it must be an URL such as https://example.com`},
		"no certificate":           {v1alpha1.AL2, func(c *userdata.Config) { c.CA = "" }, "cluster-ca must be"},
		"a certificate as PEM":     {v1alpha1.AL2, func(c *userdata.Config) { c.CA = "-----BEGIN" }, "cluster-ca must be"},
		"no range":                 {v1alpha1.AL2023, func(c *userdata.Config) { c.CIDR = "" }, `cluster-cidr is "": it must be the range`},
		"an address":               {v1alpha1.AL2, func(c *userdata.Config) { c.CIDR = "10.0.0.1" }, `cluster-cidr is "10.0.0.1"`},
		"Bottlerocket's stop":      {v1alpha1.Bottlerocket, func(c *userdata.Config) { c.SelfStop = true }, "spec.preWarm.completionMode is SelfStop: a machine with Bottlerocket cannot stop itself; set ControllerStop"},
		"Bottlerocket's images":    {v1alpha1.Bottlerocket, func(c *userdata.Config) { c.Images = []string{"nginx"} }, "spec.preWarm.imagesToPull is set: a machine with Bottlerocket cannot pull"},
		"Bottlerocket's flags":     {v1alpha1.Bottlerocket, func(c *userdata.Config) { c.Kubelet.ExtraArgs = map[string]string{"v": "4"} }, "set settings.kubernetes in spec.customUserData"},
		"no TOML":                  {v1alpha1.Bottlerocket, func(c *userdata.Config) { c.Custom = "#!/bin/sh\ntrue\n" }, "spec.customUserData is not TOML"},
		"a setting for a table":    {v1alpha1.Bottlerocket, func(c *userdata.Config) { c.Custom = "settings = 1" }, "settings in spec.customUserData must be a table"},
		"a setting for a list":     {v1alpha1.Bottlerocket, func(c *userdata.Config) { c.Custom = "[settings.kubernetes.node-taints]\ndedicated = 1" }, "node-taints.dedicated in spec.customUserData must be a list"},
		"no known kind":            {v1alpha1.AL2023, func(c *userdata.Config) { c.Custom = "echo hello" }, "spec.customUserData must begin with #! or #cloud-config"},
		"a NodeConfig for AL2":     {v1alpha1.AL2, func(c *userdata.Config) { c.Custom = "apiVersion: node.eks.aws/v1alpha1\n" }, "which only AL2023 reads"},
		"a NodeConfig not of YAML": {v1alpha1.AL2023, func(c *userdata.Config) { c.Custom = "apiVersion: node.eks.aws/v1alpha1\n\t:" }, "spec.customUserData is not YAML"},
		"no multipart":             {v1alpha1.AL2023, func(c *userdata.Config) { c.Custom = "Content-Type: text/plain\n\nx" }, "must be multipart/mixed with a boundary"},
		"a multipart cut off":      {v1alpha1.AL2023, func(c *userdata.Config) { c.Custom = "Content-Type: multipart/mixed; boundary=x\n\n--x\nA: b\n\nc" }, "spec.customUserData is not a MIME multipart"},
		"no image's name":          {v1alpha1.AL2023, func(c *userdata.Config) { c.Images = []string{"nginx", "$(reboot)"} }, `image "$(reboot)" of spec.preWarm.imagesToPull or a DaemonSet`},
		"a bad label":              {v1alpha1.AL2023, func(c *userdata.Config) { c.Labels = map[string]string{"a": "b,c=d"} }, "label a of the template"},
		"a bad label's key":        {v1alpha1.AL2023, func(c *userdata.Config) { c.Labels = map[string]string{"a b": "c"} }, `label "a b" of the template`},
		"a taint without a key":    {v1alpha1.AL2023, func(c *userdata.Config) { c.Taints = []corev1.Taint{{Effect: corev1.TaintEffectNoSchedule}} }, "taint "},
		"an unknown effect":        {v1alpha1.AL2023, func(c *userdata.Config) { c.Taints = []corev1.Taint{{Key: "a", Effect: "Evict"}} }, "effect must be NoSchedule, PreferNoSchedule or NoExecute"},
		"a taint twice":            {v1alpha1.AL2023, func(c *userdata.Config) { c.Taints = append(c.Taints, c.Taints[0]) }, "must not be there twice"},
		"a flag with dashes":       {v1alpha1.AL2, func(c *userdata.Config) { c.Kubelet.ExtraArgs = map[string]string{"--v": "4"} }, "without dashes before it"},
		"a flag with a space":      {v1alpha1.AL2, func(c *userdata.Config) { c.Kubelet.ExtraArgs = map[string]string{"v": "4 5"} }, "spec.kubelet.extraArgs.v"},
		"a flag of ours":           {v1alpha1.AL2, func(c *userdata.Config) { c.Kubelet.ExtraArgs = map[string]string{"max-pods": "4"} }, "maxPods of spec.kubelet instead"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(row.bootstrap)
			row.change(&c)
			data, err := c.Render()
			require.ErrorContains(t, err, row.message)
			require.Zero(t, data)
		})
	}
}

// TestALongUserDataIsRefused holds the bounds to the byte.
func TestALongUserDataIsRefused(t *testing.T) {
	t.Parallel()
	c := config(v1alpha1.AL2023)
	c.Custom = "#!/bin/sh\n"
	least, err := c.Render()
	require.NoError(t, err)
	of := func(length int) (userdata.Data, error) {
		c := c
		c.Custom += strings.Repeat("#", length-len(least.Text))
		return c.Render()
	}
	data, err := of(14 << 10)
	require.NoError(t, err)
	require.Len(t, data.Text, 14<<10)
	require.Empty(t, data.Warning)
	data, err = of(14<<10 + 1)
	require.NoError(t, err)
	require.Contains(t, data.Warning, "the user data has 14337 bytes, and EC2 takes at most 16384")
	data, err = of(16 << 10)
	require.NoError(t, err)
	require.Contains(t, data.Warning, "16384 bytes")
	_, err = of(16<<10 + 1)
	require.ErrorContains(t, err, "the user data has 16385 bytes, and EC2 takes at most 16384: shorten customUserData or imagesToPull; ")
	require.ErrorContains(t, err, fmt.Sprintf("has %d bytes, and 3 images", len(c.Custom)+16<<10+1-len(least.Text)))
}

// FuzzCustomUserDataIsKept gives any text as user data of a class: it is refused, or each
// part of it is there, and what the operator adds is there once.
func FuzzCustomUserDataIsKept(f *testing.F) {
	for _, text := range []string{"", "#!/bin/sh\ntrue", "#cloud-config\na: b", "apiVersion: node.eks.aws/v1", "Content-Type: multipart/mixed; boundary=x\n\n--x\n\nc\n--x--", "[settings]\na = 1", "é#!", "#!\r\n--stratos-\r\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, bootstrap := range []v1alpha1.BootstrapTemplate{v1alpha1.AL2023, v1alpha1.AL2} {
			c := config(bootstrap)
			c.Custom = text
			data, err := c.Render()
			if err != nil {
				continue
			}
			_, bodies := split(t, data.Text)
			require.GreaterOrEqual(t, len(bodies), 2)
			require.Contains(t, bodies[len(bodies)-1], "systemctl poweroff")
			if strings.HasPrefix(text, "#!") {
				require.Equal(t, text, bodies[0])
			}
		}
		c := config(v1alpha1.Bottlerocket)
		c.Custom = text
		if data, err := c.Render(); err == nil {
			var before, after map[string]any
			_, err := toml.Decode(text, &before)
			require.NoError(t, err)
			_, err = toml.Decode(data.Text, &after)
			require.NoError(t, err)
			for key := range before {
				require.Contains(t, after, key)
			}
		}
	})
}
