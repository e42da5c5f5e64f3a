// Package folder reads the desired state of a set from YAML: files, folders and standard
// input, each object with the file and line where it stands.
package folder

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	sigsyaml "sigs.k8s.io/yaml"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Object is one object and where it stands, such as shop/web.yaml:12.
type Object struct {
	*unstructured.Unstructured

	At string
}

// Read returns the objects of files and folders, in the order of the paths. Sub-folders are
// included. In a folder, files with the ending .yaml, .yml or .json count, and those that
// begin with a dot do not. A kind List stands for its items.
//
// The objects are valid together with the errors, one for each fault, which begin with file
// and line. An object with a fault is left out, and so is a file that is cut off or is no
// YAML, as a whole: what stands before the fault may be cut off, too. Of two objects with
// one name, both are left out.
func Read(paths []string, stdin io.Reader) (objects []Object, faults []error) {
	for _, path := range paths {
		files, err := list(path)
		if err != nil {
			faults = append(faults, err)
		}
		for _, file := range files {
			found, wrong := readFile(file, stdin)
			objects, faults = append(objects, found...), append(faults, wrong...)
		}
		if err == nil && len(files) == 0 {
			faults = append(faults, fmt.Errorf("%s: has no file that ends in .yaml, .yml or .json", path))
		}
	}
	return distinct(objects, faults)
}

// linksToFolder reports whether an entry is a link to a folder. Such links may form a circle.
func linksToFolder(file string, entry fs.DirEntry) bool {
	if entry.Type()&fs.ModeSymlink == 0 {
		return false
	}
	info, err := os.Stat(file)
	return err == nil && info.IsDir()
}

// list returns the files of a path.
func list(path string) (files []string, err error) {
	if path == Stdin {
		return []string{Stdin}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	// The separator has a link to a folder followed.
	root := strings.TrimRight(path, string(filepath.Separator)) + string(filepath.Separator)
	err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return unreadable(file, err)
		case file != root && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case linksToFolder(file, entry):
			return fmt.Errorf("%s: is a link to a folder, must be a folder or a file: name it with -f", file)
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)):
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

// unreadable is the error for a file or folder that cannot be read.
func unreadable(path string, err error) error {
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause.Err
	}
	return fmt.Errorf("%s: cannot be read: %w", path, err)
}

func readFile(file string, stdin io.Reader) ([]Object, []error) {
	if file == Stdin {
		data, err := io.ReadAll(stdin)
		switch {
		case err != nil:
			return nil, []error{fmt.Errorf("standard input: cannot be read: %w", err)}
		case len(bytes.TrimSpace(data)) == 0:
			return nil, []error{errors.New("standard input: is empty, must be YAML")}
		}
		return parse("standard input", data)
	}
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil, []error{fmt.Errorf("%s: is no regular file", file)} // reading a pipe may never end
	}
	data, err := os.ReadFile(file)
	switch {
	case err != nil:
		return nil, []error{unreadable(file, err)}
	case len(bytes.TrimSpace(data)) == 0: // as an editor leaves it before it writes
		return nil, []error{fmt.Errorf("%s: is empty, must be YAML; if it is meant, remove the file", file)}
	}
	return parse(file, data)
}

// linePattern finds the line in an error of the YAML library.
var linePattern = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// copiedPattern finds what an error says of the document's copy, whose lines are others.
var copiedPattern = regexp.MustCompile(`(error converting YAML to JSON: )?yaml: (unmarshal errors:\s*)?(line \d+: )?`)

func parse(file string, data []byte) (objects []Object, faults []error) {
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return objects, faults
		}
		if err != nil {
			at := file
			if line := linePattern.FindStringSubmatch(err.Error()); line != nil && line[1] != "" {
				at += ":" + line[1]
			}
			return nil, []error{fmt.Errorf("%s: is no YAML: %s", at, linePattern.ReplaceAllString(err.Error(), ""))}
		}
		for _, node := range document.Content {
			found, wrong := read(file, node)
			objects, faults = append(objects, found...), append(faults, wrong...)
		}
	}
}

// read returns the object of a document. A document of kind List has several.
func read(file string, node *yaml.Node) ([]Object, []error) {
	at := fmt.Sprintf("%s:%d", file, node.Line)
	if node.Tag == "!!null" {
		return nil, nil // an empty document
	}
	if node.Kind != yaml.MappingNode {
		return nil, []error{fmt.Errorf("%s: is no object: want apiVersion, kind and metadata", at)}
	}
	if items := field(node, "items"); items != nil && items.Kind == yaml.SequenceNode && strings.HasSuffix(text(node, "kind"), "List") {
		var objects []Object
		var faults []error
		for _, item := range items.Content {
			found, wrong := read(file, item)
			objects, faults = append(objects, found...), append(faults, wrong...)
		}
		return objects, faults
	}
	object := &unstructured.Unstructured{}
	data, err := yaml.Marshal(node)
	if err == nil {
		// The API server takes JSON: it has text as keys, and one kind of numbers.
		err = sigsyaml.UnmarshalStrict(data, &object.Object)
	}
	if err != nil {
		return nil, []error{fmt.Errorf("%s: %s", at, copiedPattern.ReplaceAllString(err.Error(), ""))}
	}
	if err := check(object); err != nil {
		return nil, []error{fmt.Errorf("%s: %w", at, err)}
	}
	return []Object{{object, at}}, nil
}

// field returns the value of a mapping's key, nil if there is none.
func field(node *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}

func text(node *yaml.Node, name string) string {
	if found := field(node, name); found != nil {
		return found.Value
	}
	return ""
}

// check returns what the API server would refuse without a word about the place.
func check(object *unstructured.Unstructured) error {
	for _, name := range []string{"apiVersion", "kind"} {
		if value, ok := object.Object[name].(string); !ok || value == "" {
			return fmt.Errorf("%s: is missing", name)
		}
	}
	if _, err := schema.ParseGroupVersion(object.GetAPIVersion()); err != nil {
		return fmt.Errorf("apiVersion: is %q, must be group/version, or v1", object.GetAPIVersion())
	}
	if _, ok := object.Object["metadata"].(map[string]any); !ok || object.GetName() == "" {
		return fmt.Errorf("%s: metadata.name: is missing", object.GetKind())
	}
	if object.GetKind() != "Secret" || object.GetAPIVersion() != "v1" {
		return nil
	}
	for _, name := range []string{"data", "stringData"} {
		values, ok := object.Object[name].(map[string]any)
		if !ok && object.Object[name] != nil {
			return fmt.Errorf("%s of Secret %s: must be keys with values", name, object.GetName())
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if _, ok := values[key].(string); !ok && values[key] != nil {
				return fmt.Errorf("%s.%s of Secret %s: must be text: put it in quotes", name, key, object.GetName())
			}
		}
	}
	data, _ := object.Object["data"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(data)) {
		value, ok := data[key].(string)
		if _, err := base64.StdEncoding.DecodeString(value); data[key] != nil && (!ok || err != nil) {
			return fmt.Errorf("data.%s of Secret %s: must be base64 (plain text belongs in stringData)", key, object.GetName())
		}
	}
	return nil
}

// distinct leaves out the objects that are there twice.
func distinct(objects []Object, faults []error) ([]Object, []error) {
	type name struct {
		kind            schema.GroupKind
		namespace, name string
	}
	of := func(o Object) name { return name{o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName()} }
	first := map[name]string{}
	twice := map[name]bool{}
	for _, o := range objects {
		if at, ok := first[of(o)]; ok {
			faults = append(faults, fmt.Errorf("%s: %s %s is also in %s: one of them must go", o.At, o.GetKind(), o.GetName(), at))
			twice[of(o)] = true
			continue
		}
		first[of(o)] = o.At
	}
	return slices.DeleteFunc(objects, func(o Object) bool { return twice[of(o)] }), faults
}
