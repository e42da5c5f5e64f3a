package podtest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// data returns the contents of a Secret or ConfigMap; none if it is not there and may lack.
func (p *pod) data(ctx context.Context, plural, name string, optional *bool) (map[string][]byte, error) {
	o, err := p.node.client.Resource(corev1.SchemeGroupVersion.WithResource(plural)).Namespace(p.object.Namespace).
		Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && value(optional, false):
		return nil, nil //nolint:nilnil // it may be absent
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%s %q not found", plural[:len(plural)-1], name)
	case err != nil:
		return nil, err
	}
	all := map[string][]byte{}
	texts, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return nil, err
	}
	for key, text := range texts {
		all[key] = []byte(text)
		if plural == "secrets" {
			if all[key], err = base64.StdEncoding.DecodeString(text); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// volume returns the folder of a volume.
func (p *pod) volume(ctx context.Context, v corev1.Volume) (string, error) {
	switch {
	case v.PersistentVolumeClaim != nil:
		// It outlives the pod.
		dir := filepath.Join(p.node.dir, "claims", p.object.Namespace, v.PersistentVolumeClaim.ClaimName)
		return dir, errors.Join(os.MkdirAll(dir, 0o777), p.give(dir, 0o2777))
	case v.EmptyDir != nil:
		dir, err := p.folder("volumes", v.Name)
		return dir, errors.Join(err, p.give(dir, 0o2777))
	}
	files, mode, err := p.files(ctx, v)
	if err != nil {
		return "", err
	}
	dir, err := p.folder("volumes", v.Name)
	for name, content := range files {
		at := filepath.Join(dir, filepath.Clean("/"+name))
		err = errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, content, 0o600), p.give(at, os.FileMode(mode)))
	}
	return dir, err
}

// give gives a file or folder to the group of the pod.
func (p *pod) give(path string, mode os.FileMode) error {
	if s := p.object.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		if err := os.Chown(path, -1, int(*s.FSGroup)); err != nil {
			return err
		}
		mode |= 0o040
	} else if mode&0o2000 != 0 {
		mode = 0o777
	}
	return os.Chmod(path, mode)
}

// files returns the files of a volume that cannot be written to, and their mode.
func (p *pod) files(ctx context.Context, v corev1.Volume) (map[string][]byte, uint32, error) {
	switch {
	case v.Secret != nil:
		data, err := p.data(ctx, "secrets", v.Secret.SecretName, v.Secret.Optional)
		files, missing := some(data, v.Secret.Items, v.Secret.Optional)
		return files, modeOf(v.Secret.DefaultMode), errors.Join(err, missing)
	case v.ConfigMap != nil:
		data, err := p.data(ctx, "configmaps", v.ConfigMap.Name, v.ConfigMap.Optional)
		files, missing := some(data, v.ConfigMap.Items, v.ConfigMap.Optional)
		return files, modeOf(v.ConfigMap.DefaultMode), errors.Join(err, missing)
	case v.DownwardAPI != nil:
		files, err := p.fields(v.DownwardAPI.Items)
		return files, modeOf(v.DownwardAPI.DefaultMode), err
	case v.Projected != nil:
		all := map[string][]byte{}
		for _, source := range v.Projected.Sources {
			files, err := p.projected(ctx, source)
			if err != nil {
				return nil, 0, err
			}
			maps.Copy(all, files)
		}
		return all, modeOf(v.Projected.DefaultMode), nil
	}
	return nil, 0, errors.New("a volume of this kind cannot be had here")
}

func (p *pod) projected(ctx context.Context, source corev1.VolumeProjection) (map[string][]byte, error) {
	switch {
	case source.Secret != nil:
		data, err := p.data(ctx, "secrets", source.Secret.Name, source.Secret.Optional)
		files, missing := some(data, source.Secret.Items, source.Secret.Optional)
		return files, errors.Join(err, missing)
	case source.ConfigMap != nil:
		data, err := p.data(ctx, "configmaps", source.ConfigMap.Name, source.ConfigMap.Optional)
		files, missing := some(data, source.ConfigMap.Items, source.ConfigMap.Optional)
		return files, errors.Join(err, missing)
	case source.DownwardAPI != nil:
		return p.fields(source.DownwardAPI.Items)
	case source.ServiceAccountToken != nil:
		token, err := p.token(ctx, source.ServiceAccountToken)
		return map[string][]byte{source.ServiceAccountToken.Path: token}, err
	}
	return nil, errors.New("a projected volume of this kind cannot be had here")
}

// token returns a token of the pod's ServiceAccount.
func (p *pod) token(ctx context.Context, want *corev1.ServiceAccountTokenProjection) ([]byte, error) {
	spec := map[string]any{"boundObjectRef": map[string]any{
		"kind": "Pod", "apiVersion": "v1", "name": p.object.Name, "uid": string(p.object.UID),
	}}
	if want.Audience != "" {
		spec["audiences"] = []any{want.Audience}
	}
	o, err := p.node.client.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).Namespace(p.object.Namespace).Create(
		ctx,
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
			"metadata": map[string]any{"name": p.object.Spec.ServiceAccountName}, "spec": spec,
		}}, metav1.CreateOptions{}, "token",
	)
	if err != nil {
		return nil, err
	}
	token, _, err := unstructured.NestedString(o.Object, "status", "token")
	return []byte(token), err
}

// some returns the stated items of the data under their paths; all without items.
func some(data map[string][]byte, items []corev1.KeyToPath, optional *bool) (map[string][]byte, error) {
	if len(items) == 0 {
		return data, nil
	}
	files := map[string][]byte{}
	for _, item := range items {
		content, found := data[item.Key]
		if !found && !value(optional, false) {
			return nil, fmt.Errorf("references non-existent key: %s", item.Key)
		}
		if found {
			files[item.Path] = content
		}
	}
	return files, nil
}

func (p *pod) fields(items []corev1.DownwardAPIVolumeFile) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, item := range items {
		if item.FieldRef == nil {
			return nil, errors.New(item.Path + ": resourceFieldRef cannot be had here")
		}
		text, err := p.field(item.FieldRef.FieldPath)
		if err != nil {
			return nil, err
		}
		files[item.Path] = []byte(text)
	}
	return files, nil
}

func modeOf(mode *int32) uint32 { return uint32(value(mode, 0o644)) } //nolint:gosec // the API server has checked it
