package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"
)

// The folders of charts in the checkout: one chart for each base, and the chart of the agent-run operator.
const (
	chartsDir = "deploy/charts"
	ownChart  = "cmd/agentjob/chart"
)

// install writes what puts the version on a cluster or a machine: the bases for kustomize
// and the charts for Helm, both with the images of the version, and the manifests by which
// krew and Homebrew find the archives.
func (r *release) install(at time.Time) error {
	bases, err := r.bases()
	if err != nil {
		return err
	}
	name := "trueup_" + r.version + "_kubernetes"
	if err := r.tar(name+".tar.gz", name, bases, at); err != nil {
		return err
	}
	charts, err := filepath.Glob(filepath.Join(r.root, chartsDir, "*"))
	if err != nil {
		return err
	}
	for _, dir := range append(charts, filepath.Join(r.root, ownChart)) {
		chart, name, err := r.chart(dir)
		if err != nil {
			return err
		}
		if err := r.tar(name+"-"+strings.TrimPrefix(r.version, "v")+".tgz", name, chart, at); err != nil {
			return err
		}
	}
	if !slices.Contains(r.programs, "trueup") {
		return nil // both are about this program
	}
	return r.finders()
}

// ours is the image of a program of this repository, without a version of a release.
var ours = regexp.MustCompile(`(image: \S+/(?:` + strings.Join(programs(), "|") + `)):latest\b`)

// bases returns the files below deploy beside the charts, with images of the version.
func (r *release) bases() ([]entry, error) {
	all, err := entries(filepath.Join(r.root, "deploy"))
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(e entry) bool { return strings.HasPrefix(e.name, filepath.Base(chartsDir)+"/") })
	images := map[string]int{} // by base
	for n, e := range all {
		base, _, _ := strings.Cut(e.name, "/")
		images[base] += len(ours.FindAll(e.content, -1))
		all[n].content = ours.ReplaceAll(e.content, []byte("${1}:"+r.version))
	}
	for base, count := range images {
		if count == 0 {
			return nil, fmt.Errorf("deploy/%s: has no image of this repository with the version latest", base)
		}
	}
	return all, nil
}

// chart returns the files of the chart in a folder, which names the version, and its name.
func (r *release) chart(dir string) (all []entry, name string, err error) {
	if all, err = entries(dir); err != nil {
		return nil, "", err
	}
	for n, e := range all {
		if e.name != "Chart.yaml" {
			continue
		}
		text := string(e.content)
		for field, value := range map[string]string{"version": strings.TrimPrefix(r.version, "v"), "appVersion": r.version} {
			line := regexp.MustCompile(`(?m)^` + field + `: .*$`)
			if len(line.FindAllString(text, -1)) != 1 {
				return nil, "", fmt.Errorf("%s/Chart.yaml: must have one line %s", dir, field)
			}
			text = line.ReplaceAllString(text, field+": "+value)
		}
		all[n].content = []byte(text)
		if found := regexp.MustCompile(`(?m)^name: (\S+)$`).FindStringSubmatch(text); found != nil {
			name = found[1]
		}
	}
	if name == "" {
		return nil, "", fmt.Errorf("%s/Chart.yaml: has no name", dir)
	}
	return all, name, nil
}

// entries returns the files below a folder, in the order of their names.
func entries(dir string) ([]entry, error) {
	var all []entry
	err := filepath.WalkDir(dir, func(path string, file os.DirEntry, err error) error {
		if err != nil || file.IsDir() || file.Name() == ".helmignore" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		all = append(all, entry{filepath.ToSlash(name), content, 0o644})
		return err
	})
	return all, err
}

// source is where a platform finds the program trueup.
type source struct{ System, Architecture, Folder, File, Sum, Binary string }

// finders writes the manifests of krew, by which it is "kubectl trueup", and of Homebrew.
func (r *release) finders() error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	data := struct {
		Repository, Version, Number string
		Downloads                   []source
	}{Repository: "https://" + trueup, Version: r.version, Number: strings.TrimPrefix(r.version, "v")}
	for _, p := range r.platforms {
		folder := fmt.Sprintf("trueup_%s_%s_%s", r.version, p.system, p.architecture)
		d := source{System: p.system, Architecture: p.architecture, Folder: folder, File: folder + ".tar.gz", Binary: "trueup"}
		if p.system == "windows" {
			d.File, d.Binary = folder+".zip", "trueup.exe"
		}
		if d.Sum = sums[d.File]; d.Sum == "" {
			return fmt.Errorf("%s: is not in %s", d.File, r.out)
		}
		data.Downloads = append(data.Downloads, d)
	}
	for name, text := range map[string]string{"trueup.krew.yaml": krew, "trueup.rb": brew} {
		var all bytes.Buffer
		if err := template.Must(template.New(name).Parse(text)).Execute(&all, data); err != nil {
			return err
		}
		if err := r.write(name, all.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

const krew = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: trueup
spec:
  version: {{.Version}}
  homepage: {{.Repository}}
  shortDescription: Make a cluster match a folder of YAML
  description: |
    Shows how a cluster differs from a folder of YAML and which program wrote
    what differs, applies, prunes with care, and keeps it so.
  platforms:
{{- range .Downloads}}
  - selector:
      matchLabels:
        os: {{.System}}
        arch: {{.Architecture}}
    uri: {{$.Repository}}/releases/download/{{$.Version}}/{{.File}}
    sha256: {{.Sum}}
    files:
    - from: {{.Folder}}/{{.Binary}}
      to: .
    - from: {{.Folder}}/LICENSE
      to: .
    bin: {{.Binary}}
{{- end}}
`

const brew = `class Trueup < Formula
  desc "Make a Kubernetes cluster match a folder of YAML"
  homepage "{{.Repository}}"
  version "{{.Number}}"
  license "Apache-2.0"
{{range .Downloads}}{{if ne .System "windows"}}
  on_{{if eq .System "darwin"}}macos{{else}}linux{{end}} do
    on_{{if eq .Architecture "amd64"}}intel{{else}}arm{{end}} do
      url "{{$.Repository}}/releases/download/{{$.Version}}/{{.File}}"
      sha256 "{{.Sum}}"
    end
  end
{{end}}{{end}}
  def install
    bin.install "trueup"
    man1.install Dir["man/man1/trueup*.1"]
    bash_completion.install "completions/trueup.bash" => "trueup"
    zsh_completion.install "completions/trueup.zsh" => "_trueup"
    fish_completion.install "completions/trueup.fish"
  end

  test do
    assert_match "trueup v#{version} ", shell_output("#{bin}/trueup version")
  end
end
`
