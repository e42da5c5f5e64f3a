package replay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamldocs "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/capacity"
)

// ReadManifest reads the settings of a NodePool from YAML: its spec, and the type of its
// machines if its AWSNodeClass is there too. Other documents are refused, and so are
// fields that the API does not have.
func ReadManifest(r io.Reader) (Settings, error) {
	var pool *v1alpha1.NodePool
	classes := map[string]*v1alpha1.AWSNodeClass{}
	documents := yamldocs.NewYAMLReader(bufio.NewReader(r))
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return Settings{}, err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(text, &meta); err != nil {
			return Settings{}, fmt.Errorf("document %d: %w", n, err)
		}
		if want := v1alpha1.GroupVersion().String(); meta.APIVersion != want {
			return Settings{}, fmt.Errorf("document %d: apiVersion: is %q, must be %s", n, meta.APIVersion, want)
		}
		switch meta.Kind {
		case "NodePool":
			if pool != nil {
				return Settings{}, fmt.Errorf("document %d: is a second NodePool, must be the only one", n)
			}
			pool = &v1alpha1.NodePool{}
			err = yaml.UnmarshalStrict(text, pool)
		case "AWSNodeClass":
			class := &v1alpha1.AWSNodeClass{}
			err = yaml.UnmarshalStrict(text, class)
			classes[class.Name] = class
		default:
			err = fmt.Errorf("kind: is %q, must be NodePool or AWSNodeClass", meta.Kind)
		}
		if err != nil {
			return Settings{}, fmt.Errorf("document %d: %w", n, err)
		}
	}
	if pool == nil {
		return Settings{}, errors.New("there is no NodePool in it")
	}
	s := settingsOf(pool)
	if class := classes[pool.Spec.Template.NodeClassRef.Name]; class != nil {
		s.InstanceType = class.Spec.InstanceType
		s.Capacity = capacity.Of(s.InstanceType, 0, class.Spec.Kubelet.MaxPods)
	}
	return s, nil
}

// settingsOf reads the fields of a spec that a replay depends on.
func settingsOf(p *v1alpha1.NodePool) Settings {
	spec := p.Spec
	s := Settings{Interval: spec.ReconciliationInterval.Duration.Duration}
	s.Pool.Size, s.Pool.MinStandby = int(spec.PoolSize), int(spec.MinStandby)
	s.Pool.WarmupTimeout = spec.PreWarm.Timeout.Duration.Duration
	s.Pool.KeepEmpty = spec.ScaleDown.Enabled != nil && !*spec.ScaleDown.Enabled
	s.Pool.EmptyTTL = spec.ScaleDown.EmptyNodeTTL.Duration.Duration
	s.Pool.DrainTimeout = spec.ScaleDown.DrainTimeout.Duration.Duration
	if d := spec.MaxNodeRuntime; d != nil {
		s.Pool.MaxRuntime = d.Duration.Duration
	}
	if d := spec.ScaleDown.SurplusStandbyTTL; d != nil {
		s.Pool.SurplusTTL = d.Duration.Duration
	}
	if requests := spec.ScaleUp.DefaultPodResources.Requests; len(requests) > 0 {
		s.DefaultRequests = cloudkube.Resources(corev1.ResourceList(requests))
	}
	return s
}
