package upstream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// Definitions returns the Scenario.Kinds of the CustomResourceDefinitions in files of YAML,
// in the version that each one stores: of those in config/crd/bases, say. pattern is as in
// filepath.Glob, and matches at least one file. Objects of these kinds are treated by the code of
// a real server: see [simtest.Schema]. A definition that a real server refuses is an error.
func Definitions(pattern string) (all []simtest.Kind, _ error) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("upstream: %q: must match files with definitions: %w", pattern, cmp.Or(err, fs.ErrNotExist))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("upstream: %w", err)
		}
		for reader := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			kinds, err := define(document, err)
			if err != nil {
				return nil, fmt.Errorf("upstream: %s: %w", file, err)
			}
			all = append(all, kinds...)
		}
	}
	return all, nil
}

// define returns the kind that a document defines, none if it is no definition. failed is the error
// of its reader.
func define(document []byte, failed error) ([]simtest.Kind, error) {
	var about struct{ Kind string }
	if err := errors.Join(failed, yaml.Unmarshal(document, &about)); err != nil {
		return nil, err
	}
	if about.Kind != "CustomResourceDefinition" {
		return nil, nil
	}
	o, _, err := definitions().Decode(document, nil, nil)
	if err != nil {
		return nil, err
	}
	d, ok := o.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return nil, fmt.Errorf("a definition, and not %T", o)
	}
	kind := simtest.Kind{
		Group: d.Spec.Group, Kind: d.Spec.Names.Kind, Resource: d.Spec.Names.Plural, Singular: d.Spec.Names.Singular,
		ShortNames: d.Spec.Names.ShortNames, Cluster: d.Spec.Scope == apiextensions.ClusterScoped,
	}
	d.Status = apiextensions.CustomResourceDefinitionStatus{}
	for _, v := range d.Spec.Versions {
		if v.Storage {
			kind.Version, d.Status.StoredVersions = v.Name, []string{v.Name}
		}
	}
	ctx := context.Background() //nolint:forbidigo // the validation waits for nothing
	if err := validation.ValidateCustomResourceDefinition(ctx, d).ToAggregate(); err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name, err)
	}
	if err := describe(&kind, d); err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name, err)
	}
	return []simtest.Kind{kind}, nil
}

// definitions decodes definitions of any version. An unknown field is an error.
var definitions = sync.OnceValue(func() runtime.Decoder { //nolint:gochecknoglobals // never changed
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
})

// describe sets what a valid definition says of the kind's objects.
func describe(kind *simtest.Kind, d *apiextensions.CustomResourceDefinition) error {
	selectable := d.Spec.SelectableFields
	for _, v := range d.Spec.Versions {
		if v.Name == kind.Version {
			selectable = append(selectable, v.SelectableFields...)
		}
	}
	for _, each := range selectable {
		kind.Selectable = append(kind.Selectable, strings.TrimPrefix(each.JSONPath, "."))
	}
	parts, err := apiextensions.GetSubresourcesForVersion(d, kind.Version)
	if err != nil {
		return err
	}
	if parts != nil {
		kind.Status, kind.Scale = parts.Status != nil, scaleOf(parts.Scale)
	}
	given, err := apiextensions.GetSchemaForVersion(d, kind.Version)
	if err != nil {
		return err
	}
	kind.Schema, err = newCustom(*kind, given.OpenAPIV3Schema)
	return err
}

func scaleOf(s *apiextensions.CustomResourceSubresourceScale) *simtest.Scale {
	if s == nil {
		return nil
	}
	scale := &simtest.Scale{
		Replicas: strings.TrimPrefix(s.SpecReplicasPath, "."), StatusReplicas: strings.TrimPrefix(s.StatusReplicasPath, "."),
	}
	if s.LabelSelectorPath != nil {
		scale.Selector = strings.TrimPrefix(*s.LabelSelectorPath, ".")
	}
	return scale
}
