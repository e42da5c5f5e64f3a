package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// unpack returns the files of an archive by name.
func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	files := map[string]string{}
	if strings.HasSuffix(name, ".zip") {
		all, err := zip.OpenReader(name)
		require.NoError(t, err)
		defer all.Close() //nolint:errcheck // it is read
		for _, file := range all.File {
			from, err := file.Open()
			require.NoError(t, err)
			text, err := io.ReadAll(from)
			require.NoError(t, err)
			files[file.Name] = string(text)
		}
		return files
	}
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close() //nolint:errcheck // it is read
	plain, err := gzip.NewReader(file)
	require.NoError(t, err)
	for all := tar.NewReader(plain); ; {
		header, err := all.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(all)
		require.NoError(t, err)
		files[header.Name] = string(text)
	}
}

// TestBasesAndTheChartNameTheVersion reads the archives of a release.
func TestBasesAndTheChartNameTheVersion(t *testing.T) {
	t.Parallel()
	r := release{
		root: "../..", out: t.TempDir(), version: "v1.2.3-rc.1", programs: []string{"trueup"},
		platforms: []platform{{"linux", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}},
	}
	require.ErrorContains(t, r.install(time.Unix(1000, 0)), "trueup_v1.2.3-rc.1_linux_amd64.tar.gz: is not in "+r.out)
	for _, name := range []string{"linux_amd64.tar.gz", "darwin_arm64.tar.gz", "windows_amd64.zip"} {
		require.NoError(t, r.write("trueup_v1.2.3-rc.1_"+name, []byte("x")))
	}
	require.NoError(t, r.install(time.Unix(1000, 0)))
	bases := unpack(t, filepath.Join(r.out, "trueup_v1.2.3-rc.1_kubernetes.tar.gz"))
	listed, err := os.ReadDir("../../deploy")
	require.NoError(t, err)
	images := 0
	listed = slices.DeleteFunc(listed, func(base os.DirEntry) bool { return base.Name() == "charts" })
	for _, base := range listed {
		require.Contains(t, bases, "trueup_v1.2.3-rc.1_kubernetes/"+base.Name()+"/kustomization.yaml")
	}
	for name, text := range bases {
		for line := range strings.Lines(text) {
			if image, found := strings.CutPrefix(strings.TrimSpace(line), "image: "); found && strings.Contains(image, "/") {
				images++
				require.True(t, strings.HasSuffix(image, ":v1.2.3-rc.1"), "%s: %s", name, image)
			}
		}
	}
	require.Equal(t, len(listed), images)

	charts, err := filepath.Glob(filepath.Join(r.out, "*.tgz"))
	require.NoError(t, err)
	require.Len(t, charts, 7)
	var chart map[string]string
	for _, name := range []string{"application", "controlplane", "controlplane-postgresql", "krane", "nodepool", "shuttle", "thurkube"} {
		chart = unpack(t, filepath.Join(r.out, name+"-1.2.3-rc.1.tgz"))
		var about struct {
			Name, Version string
			AppVersion    string `yaml:"appVersion"`
		}
		require.NoError(t, yaml.Unmarshal([]byte(chart[name+"/Chart.yaml"]), &about))
		require.Equal(t, name+" 1.2.3-rc.1 v1.2.3-rc.1", strings.Join([]string{about.Name, about.Version, about.AppVersion}, " "))
		require.Contains(t, chart, name+"/values.yaml")
	}
	require.Contains(t, chart, "thurkube/templates/deployment.yaml")
	require.Contains(t, chart, "thurkube/values.schema.json")

	text, err := os.ReadFile(filepath.Join(r.out, "trueup.krew.yaml"))
	require.NoError(t, err)
	var plugin struct {
		Spec struct {
			Version   string
			Platforms []struct {
				URI, Sha256, Bin string
				Selector         struct {
					MatchLabels map[string]string `yaml:"matchLabels"`
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &plugin))
	require.Equal(t, "v1.2.3-rc.1", plugin.Spec.Version)
	require.Len(t, plugin.Spec.Platforms, 3)
	windows := plugin.Spec.Platforms[2]
	require.Equal(t, "https://"+trueup+"/releases/download/v1.2.3-rc.1/trueup_v1.2.3-rc.1_windows_amd64.zip", windows.URI)
	require.Equal(t, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881", windows.Sha256) // of x
	require.Equal(t, "trueup.exe", windows.Bin)
	formula, err := os.ReadFile(filepath.Join(r.out, "trueup.rb"))
	require.NoError(t, err)
	require.Contains(t, string(formula), `url "https://`+trueup+`/releases/download/v1.2.3-rc.1/trueup_v1.2.3-rc.1_darwin_arm64.tar.gz"`)
	require.NotContains(t, string(formula), "windows")
}

// TestABaseWithoutOurImageIsNamed plants a base whose image has another name.
func TestABaseWithoutOurImageIsNamed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "deploy/other"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "deploy/other/manifests.yaml"), []byte("image: example.com/other:v1\n"), 0o600))
	r := release{root: root}
	_, err := r.bases()
	require.ErrorContains(t, err, "deploy/other: has no image of this repository with the version latest")
}

// TestAnArchiveHasWhatItsSystemUnpacks packs the same entries for a Unix and for Windows.
func TestAnArchiveHasWhatItsSystemUnpacks(t *testing.T) {
	t.Parallel()
	r := release{out: t.TempDir()}
	all := []entry{{"trueup", []byte("program"), 0o755}, {"man/man1/trueup.1", []byte("page"), 0o644}}
	require.NoError(t, r.tar("a.tar.gz", "a", all, time.Unix(1000, 0)))
	require.NoError(t, r.zip("a", all, time.Unix(1000, 0)))
	want := map[string]string{"a/trueup": "program", "a/man/man1/trueup.1": "page"}
	require.Equal(t, want, unpack(t, filepath.Join(r.out, "a.tar.gz")))
	require.Equal(t, want, unpack(t, filepath.Join(r.out, "a.zip")))
}
