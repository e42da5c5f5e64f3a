package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
)

// compiles skips a test that compiles a program again, two minutes' work, with -short.
func compiles(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles a program: runs without -short, in make test-long")
	}
}

// TestAnImageIsPulledAsItWasPushed builds the image of one program for this platform,
// pushes it to a registry, and runs the program that it reads back.
func TestAnImageIsPulledAsItWasPushed(t *testing.T) {
	t.Parallel()
	compiles(t)
	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/team/trueup"
	out := t.TempDir()
	require.NoError(
		t,
		run(
			t.Context(),
			[]string{"images", "--out", out, "--programs", "agentjob", "--platforms", "linux/amd64", "--version", "v0.1.0", "--push", repository},
			t.Output(),
		),
	)
	reference, err := name.ParseReference(repository + "/agentjob:v0.1.0")
	require.NoError(t, err)
	index, err := remote.Index(reference, remote.WithContext(t.Context()))
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	require.Equal(t, v1.Platform{OS: "linux", Architecture: "amd64"}, *manifest.Manifests[0].Platform)
	image, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	push := func(version, to string) error {
		return run(t.Context(), []string{"push", "--out", out, "--programs", "agentjob", "--version", version, "--push", to}, t.Output())
	}
	require.NoError(t, push("v0.1.0", repository+"/again"))
	again, err := remote.Index(reference.Context().Registry.Repo("team/trueup/again/agentjob").Tag("v0.1.0"), remote.WithContext(t.Context()))
	require.NoError(t, err)
	require.Equal(t, digest(t, index), digest(t, again))
	require.ErrorContains(t, push("v0.2.0", repository), `--version: is v0.2.0, but the image of agentjob was built as "v0.1.0"`)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "65532:65532", config.Config.User)
	require.Equal(t, []string{"/agentjob"}, config.Config.Entrypoint)
	for label, want := range map[string]string{
		"version": "v0.1.0", "licenses": "Apache-2.0", "source": "https://" + trueup, "title": "agentjob",
	} {
		require.Equal(t, want, config.Config.Labels["org.opencontainers.image."+label])
	}
	require.NotEmpty(t, config.Config.Labels["org.opencontainers.image.revision"])

	files := map[string][]byte{}
	content := tar.NewReader(mutate.Extract(image))
	for {
		header, err := content.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		text, err := io.ReadAll(content)
		require.NoError(t, err)
		files[header.Name] = text
	}
	require.Len(t, files, 3)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"]))
	program := filepath.Join(t.TempDir(), "agentjob")
	require.NoError(t, os.WriteFile(program, files["agentjob"], 0o700)) //nolint:gosec // it is run
	printed, err := exec.CommandContext(t.Context(), program, "version").Output()
	require.NoError(t, err)
	require.Contains(t, string(printed), "agentjob v0.1.0 ")
}

func digest(t *testing.T, index v1.ImageIndex) string {
	t.Helper()
	hash, err := index.Digest()
	require.NoError(t, err)
	return hash.String()
}

// TestTwoReleasesAreTheSameBytes releases one program twice, into two folders.
func TestTwoReleasesAreTheSameBytes(t *testing.T) {
	t.Parallel()
	compiles(t)
	var sums [2][]byte
	for n := range sums {
		out := t.TempDir()
		require.NoError(
			t,
			run(
				t.Context(),
				[]string{"archive", "--out", out, "--programs", "agentjob", "--platforms", "linux/amd64,windows/amd64", "--version", "v0.1.0"},
				io.Discard,
			),
		)
		var err error
		sums[n], err = os.ReadFile(filepath.Join(out, "SHA256SUMS"))
		require.NoError(t, err)
		for _, name := range []string{
			"trueup_v0.1.0_linux_amd64.tar.gz", "agentjob.cdx.json", "RELEASE_NOTES.md", "images/agentjob/index.json",
			"trueup_v0.1.0_windows_amd64.zip", "trueup_v0.1.0_kubernetes.tar.gz", "thurkube-0.1.0.tgz", "provenance.intoto.json",
		} {
			require.Contains(t, string(sums[n]), "  "+name+"\n")
		}
		unix := unpack(t, filepath.Join(out, "trueup_v0.1.0_linux_amd64.tar.gz"))
		require.Contains(t, unix["trueup_v0.1.0_linux_amd64/man/man1/agentjob.1"], "agentjob v0.1.0")
		require.Contains(t, unix["trueup_v0.1.0_linux_amd64/completions/agentjob.zsh"], "#compdef agentjob")
		windows := unpack(t, filepath.Join(out, "trueup_v0.1.0_windows_amd64.zip"))
		require.True(t, strings.HasPrefix(windows["trueup_v0.1.0_windows_amd64/agentjob.exe"], "MZ"))
		text, err := os.ReadFile(filepath.Join(out, "agentjob.cdx.json"))
		require.NoError(t, err)
		var bill struct {
			Components []struct{ Name, Version, Purl string }
		}
		require.NoError(t, json.Unmarshal(text, &bill))
		require.Contains(t, string(text), "pkg:golang/k8s.io/client-go@v")
		require.Greater(t, len(bill.Components), 20)
	}
	require.Equal(t, string(sums[0]), string(sums[1]))
	t.Log("figure release_reproducible 1 (two runs, the same bytes)")
}

func TestNotesAreThoseOfTheVersion(t *testing.T) {
	t.Parallel()
	const changes = "# Changelog\n\n## Unreleased\n\n- new\n\n## v0.1.0\n\n- old\n\n## v0.0.1\n\n- older\n"
	for version, want := range map[string]string{"v0.1.0": "# trueup v0.1.0\n\n- old\n", "v0.2.0": "# trueup v0.2.0\n\n- new\n", "v0.0.1": "# trueup v0.0.1\n\n- older\n"} {
		notes, err := notesOf(changes, version)
		require.NoError(t, err)
		require.Equal(t, want, notes)
	}
	_, err := notesOf("# Changelog\n", "v0.1.0")
	require.ErrorContains(t, err, "neither a section v0.1.0 nor one Unreleased")
}

func TestAWrongCallIsNamed(t *testing.T) {
	t.Parallel()
	for args, message := range map[string]string{
		"":                                  "release cut, push, tag, archive or images",
		"images":                            "--out: is required",
		"images --out x --version 1":        `--version: is "1", must be a version such as v0.1.0`,
		"archive --out x":                   `--version: is "latest"`,
		"images --out x --programs demo":    `--programs: "demo" is none of agentjob`,
		"images --out x --platforms linux/": `--platforms: is "linux/"`,
	} {
		var log bytes.Buffer
		require.ErrorContains(t, run(context.WithoutCancel(t.Context()), strings.Fields(args), &log), message)
	}
}
