package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nonroot is the user and group that programs run as.
const nonroot = "65532:65532"

// images builds an index of the platforms for each program, keeps it as an OCI layout in
// the folder, and pushes it if there is a repository.
func (r *release) images(ctx context.Context, repository string) error {
	revision, at, err := r.commit(ctx)
	if err != nil {
		return err
	}
	for _, program := range r.programs {
		index, err := r.index(ctx, program, revision, at)
		if err != nil {
			return err
		}
		into := filepath.Join(r.out, "images", program)
		if err := os.RemoveAll(into); err != nil {
			return err
		}
		if _, err := layout.Write(into, index); err != nil {
			return fmt.Errorf("image of %s: %w", program, err)
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		if repository == "" {
			fmt.Fprintf(r.log, "%s %s\n", into, digest) //nolint:errcheck // progress
			continue
		}
		if err := r.pushImage(ctx, repository, program, index); err != nil {
			return err
		}
	}
	return nil
}

// push pushes the images that a release has built, byte for byte.
func (r *release) push(ctx context.Context, repository string) error {
	for _, program := range r.programs {
		index, err := layout.ImageIndexFromPath(filepath.Join(r.out, "images", program))
		if err != nil {
			return fmt.Errorf("--out: %s has no image of %s: %w", r.out, program, err)
		}
		if err := r.pushImage(ctx, repository, program, index); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) pushImage(ctx context.Context, repository, program string, index v1.ImageIndex) error {
	to, err := name.ParseReference(repository + "/" + program + ":" + r.version)
	if err != nil {
		return fmt.Errorf("--push: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	if version := manifest.Annotations["org.opencontainers.image.version"]; version != r.version {
		return fmt.Errorf("--version: is %s, but the image of %s was built as %q", r.version, program, version)
	}
	if err := remote.WriteIndex(to, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push %s: %w", to, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(r.log, "%s@%s\n", to, digest) //nolint:errcheck // progress
	return nil
}

func (r *release) index(ctx context.Context, program, revision string, at time.Time) (v1.ImageIndex, error) {
	labels := map[string]string{
		"org.opencontainers.image.title":    program,
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": revision,
		"org.opencontainers.image.created":  at.Format(time.RFC3339),
		"org.opencontainers.image.source":   "https://" + trueup,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.platforms {
		if p.system != "linux" {
			continue // it has no images
		}
		binary, err := r.build(ctx, program, p)
		if err != nil {
			return nil, err
		}
		image, err := imageOf(program, binary, labels, p, at)
		if err != nil {
			return nil, fmt.Errorf("image of %s for %s: %w", program, p, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.system, Architecture: p.architecture}},
		})
	}
	return mutate.Annotations(index, labels).(v1.ImageIndex), nil //nolint:forcetypeassert // it returns what it gets
}

// imageOf makes the image of one platform: certificate authorities, a user, the program.
func imageOf(program, binary string, labels map[string]string, p platform, at time.Time) (v1.Image, error) {
	base, err := layer(map[string]file{
		"etc/ssl/certs/ca-certificates.crt": {authorities(), 0o644},
		"etc/passwd":                        {[]byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"), 0o644},
	}, "etc/passwd", "etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	top, err := layer(map[string]file{program: {content, 0o755}}, program)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(
		mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1),
		base,
		top,
	)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.system, p.architecture, v1.Time{Time: at}
	config.Config = v1.Config{User: nonroot, Entrypoint: []string{"/" + program}, Labels: labels, WorkingDir: "/"}
	return mutate.ConfigFile(image, config)
}

type file struct {
	content []byte
	mode    int64
}

// layer makes a layer of files in the order of the names, without a time.
func layer(files map[string]file, names ...string) (v1.Layer, error) {
	var all bytes.Buffer
	w := tar.NewWriter(&all)
	for _, name := range names {
		f := files[name]
		if err := w.WriteHeader(
			&tar.Header{Name: name, Size: int64(len(f.content)), Mode: f.mode, Typeflag: tar.TypeReg, Format: tar.FormatPAX},
		); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(all.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer),
	)
}

// authorities are the certificates that a program trusts, as PEM. One that is trusted under
// a condition only is left out: a bundle cannot say it.
func authorities() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return all.Bytes()
}
