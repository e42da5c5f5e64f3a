// Package userdata renders the user data of a pool's machines: how a machine joins the
// cluster, with which labels and taints, and what it does at its first boot.
//
// The first boot waits at most 300 s for a healthy kubelet, pulls images, records the
// result on the Node in the annotation [v1alpha1.AnnotationAttested], and then powers the
// machine off if it must stop itself. A machine whose kubelet is not healthy in time
// records nothing and stays on. Later boots do none of that.
package userdata

import (
	_ "embed" // for the script
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// The limits on the length of a [Data.Text], in bytes before base64.
const (
	// Limit is EC2's limit.
	Limit = 16 << 10
	// WarnAbove is the length from which there is a warning.
	WarnAbove = 14 << 10
)

// Config says what a machine does when it boots.
type Config struct {
	// Bootstrap is how the image joins. Required.
	Bootstrap v1alpha1.BootstrapTemplate
	// ClusterName, Endpoint (https) and CA (base64) describe the cluster. Required.
	ClusterName, Endpoint, CA string
	// CIDR is the CIDR of the cluster's services. AL2023 requires it. Empty otherwise: the
	// image finds the address of the DNS itself.
	CIDR string
	// Labels are those that the kubelet registers with. Those below kubernetes.io that no
	// kubelet may register with are left out; another has to put them on the Node.
	Labels map[string]string
	// Taints are those that the kubelet registers with, in this order.
	Taints []corev1.Taint
	// Kubelet are more settings. Its labels yield to Labels, and its taints come after
	// Taints, but for those with the same key and effect.
	Kubelet v1alpha1.Kubelet
	// Custom is the user data of the class: a script, a cloud-config, a NodeConfig or a
	// MIME multipart of these, which comes first; TOML for Bottlerocket, whose settings
	// yield to the settings of the cluster.
	Custom string
	// Images are pulled at the first boot. Bottlerocket cannot.
	Images []string
	// SelfStop powers the machine off after its first boot. Bottlerocket cannot.
	SelfStop bool
}

// Data is what a machine is launched with.
type Data struct {
	// Text is the user data, before base64. The same Config gives the same bytes.
	Text string
	// Warning says that the user data is almost too long. Empty: it is not.
	Warning string
}

//go:embed warmup.sh
var warmup string

// Render returns the user data. An error names the field and what would be right.
func (c Config) Render() (Data, error) {
	if err := c.check(); err != nil {
		return Data{}, err
	}
	labels, err := c.labels()
	if err != nil {
		return Data{}, err
	}
	taints, err := c.taints()
	if err != nil {
		return Data{}, err
	}
	var text string
	switch c.Bootstrap {
	case v1alpha1.AL2023, v1alpha1.AL2:
		text, err = c.multipart(labels, taints)
	case v1alpha1.Bottlerocket:
		text, err = c.bottlerocket(labels, taints)
	default:
		err = fmt.Errorf("spec.bootstrapTemplate is %q: it must be AL2023, AL2 or Bottlerocket", c.Bootstrap)
	}
	if err != nil {
		return Data{}, err
	}
	parts := fmt.Sprintf("spec.customUserData of the class has %d bytes, and %d images are pulled", len(c.Custom), len(c.Images))
	if len(text) > Limit {
		return Data{}, fmt.Errorf(
			"the user data has %d bytes, and EC2 takes at most %d: shorten customUserData or imagesToPull; %s",
			len(text),
			Limit,
			parts,
		)
	}
	data := Data{Text: text}
	if len(text) > WarnAbove {
		data.Warning = fmt.Sprintf("the user data has %d bytes, and EC2 takes at most %d; %s", len(text), Limit, parts)
	}
	return data, nil
}

func (c Config) check() error {
	if c.ClusterName == "" || strings.ContainsFunc(c.ClusterName, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("cluster-name is %q: it must be the name of the cluster", c.ClusterName)
	}
	if u, err := url.Parse(c.Endpoint); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		return fmt.Errorf("cluster-endpoint is %q: it must be an URL such as https://example.com", c.Endpoint)
	}
	if text, err := base64.StdEncoding.DecodeString(c.CA); err != nil || len(text) == 0 || strings.ContainsAny(c.CA, "\r\n") {
		return errors.New("cluster-ca must be the certificate of the cluster in base64, on one line")
	}
	if _, err := netip.ParsePrefix(c.CIDR); err != nil && (c.CIDR != "" || c.Bootstrap == v1alpha1.AL2023) {
		return fmt.Errorf("cluster-cidr is %q: it must be the range of the services' addresses, such as 10.100.0.0/16", c.CIDR)
	}
	if c.Bootstrap != v1alpha1.Bottlerocket {
		return nil
	}
	if c.SelfStop {
		return errors.New("spec.preWarm.completionMode is SelfStop: a machine with Bottlerocket cannot stop itself; set ControllerStop")
	}
	if len(c.Images) > 0 {
		return errors.New(
			"spec.preWarm.imagesToPull is set: a machine with Bottlerocket cannot pull images before pods need them; remove it, or use another image",
		)
	}
	if len(c.Kubelet.ExtraArgs) > 0 {
		return errors.New(
			"spec.kubelet.extraArgs is set: the kubelet of Bottlerocket takes no flags; set settings.kubernetes in spec.customUserData",
		)
	}
	return nil
}

// dns returns the address of the cluster's DNS, the tenth of its services by convention,
// or an invalid one if their range is not known.
func (c Config) dns() netip.Addr {
	prefix, err := netip.ParsePrefix(c.CIDR)
	if err != nil {
		return netip.Addr{}
	}
	address := prefix.Masked().Addr()
	for range 10 {
		address = address.Next()
	}
	return address
}

// script returns the script of the first boot.
func (c Config) script() (string, error) {
	var images strings.Builder
	for _, name := range c.Images {
		ref, err := reference.ParseDockerRef(name)
		if err != nil {
			return "", fmt.Errorf(
				"image %q of spec.preWarm.imagesToPull or a DaemonSet: %w: it must be such as nginx:1.29 or registry.example.com/team/app:v1",
				name,
				err,
			)
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&images, "image %s %s %s\n", quote(string(quoted)), quote(ref.String()), quote(ecrRegion(reference.Domain(ref))))
	}
	stop := "say 'waits to be stopped'"
	if c.SelfStop {
		stop = "systemctl poweroff"
	}
	return strings.NewReplacer(
		"@CLUSTER@", quote(c.ClusterName),
		"@ENDPOINT@", quote(strings.TrimRight(c.Endpoint, "/")),
		"@IMAGES@\n", images.String(),
		"@STOP@", stop,
	).Replace(warmup), nil
}

// ecrRegion returns the region of a private registry of ECR, and none for others.
func ecrRegion(domain string) string {
	parts := strings.Split(domain, ".")
	if len(parts) >= 6 && parts[1] == "dkr" && strings.HasPrefix(parts[2], "ecr") && parts[4] == "amazonaws" {
		return parts[3]
	}
	return ""
}

// quote returns a text as one word of a POSIX shell.
func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// flags returns the flags of the kubelet, each one word.
func (c Config) flags(labels map[string]string, taints []corev1.Taint) ([]string, error) {
	var flags, words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	if len(words) > 0 {
		flags = append(flags, "--node-labels="+strings.Join(words, ","))
	}
	words = nil
	for _, taint := range taints {
		words = append(words, taint.ToString())
	}
	if len(words) > 0 {
		flags = append(flags, "--register-with-taints="+strings.Join(words, ","))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Kubelet.ExtraArgs)) {
		value := c.Kubelet.ExtraArgs[name]
		switch {
		case name == "node-labels", name == "register-with-taints", name == "max-pods":
			return nil, fmt.Errorf("spec.kubelet.extraArgs has %s: set nodeLabels, nodeTaints and maxPods of spec.kubelet instead", name)
		case !flagName(name):
			return nil, fmt.Errorf("spec.kubelet.extraArgs has %q: it must be the name of a flag, without dashes before it", name)
		case strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' || r == '\'' || r == '"' }):
			return nil, fmt.Errorf("spec.kubelet.extraArgs.%s is %q: it must be printable ASCII without spaces and quotes", name, value)
		}
		flags = append(flags, "--"+name+"="+value)
	}
	return flags, nil
}

func flagName(name string) bool {
	return name != "" && name[0] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}
