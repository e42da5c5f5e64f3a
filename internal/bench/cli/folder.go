package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	prefix  = "app-" // of the names of all objects
	perFile = 20     // objects
)

// object is one object of a folder.
type object struct{ kind, name string }

// objects returns n, the last of ten a Deployment.
func objects(n int) (all []object) {
	for i := range n {
		kind := "configmap"
		if i%10 == 9 {
			kind = "deployment"
		}
		all = append(all, object{kind, fmt.Sprintf("%s%s-%04d", prefix, kind, i)})
	}
	return all
}

// yaml returns the object's document. The last line is in the middle of it, in a way.
func (o object) yaml() string {
	if o.kind == "configmap" {
		return fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata:
  name: %s
  labels:
    %s: %s
    team: ours
data:
  level: info
  address: db.example.com
`, o.name, label, app)
	}
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
  labels:
    %[2]s: %[3]s
    team: ours
spec:
  replicas: 0
  selector:
    matchLabels: {app: %[1]s}
  template:
    metadata:
      labels: {app: %[1]s}
    spec:
      containers:
        - name: web
          image: registry.example.com/web:1
          env:
            - {name: LEVEL, value: info}
          resources:
            requests: {cpu: "0.1", memory: 64Mi}
`, o.name, label, app)
}

// folder is a chart for helm, whose templates are plain files for all others.
type folder struct{ dir string }

func (f folder) files() string { return filepath.Join(f.dir, "templates") }

func (f folder) file(n int) string { return filepath.Join(f.files(), fmt.Sprintf("part-%02d.yaml", n)) }

// write writes the objects, some to each file.
func (f folder) write(all []object) error {
	if err := os.MkdirAll(f.files(), 0o750); err != nil {
		return err
	}
	content := map[string]string{
		filepath.Join(f.dir, "Chart.yaml"): "apiVersion: v2\nname: " + app + "\nversion: 1.0.0\n",
	}
	for chunk := range slices.Chunk(all, perFile) {
		var documents []string
		for _, o := range chunk {
			documents = append(documents, o.yaml())
		}
		content[f.file(len(content)-1)] = strings.Join(documents, "---\n")
	}
	for _, path := range slices.Sorted(maps.Keys(content)) {
		if err := os.WriteFile(path, []byte(content[path]), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// cut leaves of a file what stands before its third object's last line.
func (f folder) cut(n int) error {
	data, err := os.ReadFile(f.file(n))
	if err != nil {
		return err
	}
	documents := strings.SplitAfter(string(data), "---\n")
	left := strings.TrimSuffix(strings.Join(documents[:3], ""), "---\n")
	left = left[:strings.LastIndexByte(strings.TrimSuffix(left, "\n"), '\n')+1]
	return os.WriteFile(f.file(n), []byte(left), 0o600)
}

// folder writes a folder of n objects for one side.
func (b *bench) folder(s side, n int) (folder, error) {
	f := folder{filepath.Join(b.dir, s.namespace, app)}
	return f, f.write(objects(n))
}
