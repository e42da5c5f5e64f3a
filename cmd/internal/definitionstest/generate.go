// Package definitionstest generates the custom resource definitions of an operator in its
// tests.
package definitionstest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-tools/pkg/crd"
	"sigs.k8s.io/controller-tools/pkg/genall"
)

// UpToDate returns an error unless the files *.yaml of a folder are the definitions of count
// kinds, generated from the package of their types, a path such as ../../../api/v1. With
// update it writes them first. The generator's complaints go to log.
func UpToDate(folder, types string, count int, update bool, log io.Writer) error {
	generate := genall.Generator(crd.Generator{})
	runtime, err := genall.Generators{&generate}.ForRoots(types)
	if err != nil {
		return err
	}
	into, err := os.MkdirTemp("", "definitions-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(into) //nolint:errcheck // a folder of the system's, for a while
	runtime.OutputRules.Default = genall.OutputToDirectory(into)
	runtime.ErrorWriter = log
	if runtime.Run() {
		return fmt.Errorf("%s: the types do not make definitions", types)
	}
	made, err := filepath.Glob(filepath.Join(into, "*.yaml"))
	if err != nil {
		return err
	}
	if len(made) != count {
		return fmt.Errorf("%s: makes %d definitions, must make %d", types, len(made), count)
	}
	for _, path := range made {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		target := filepath.Join(folder, filepath.Base(path))
		if update {
			if err := os.WriteFile(target, text, 0o600); err != nil {
				return err
			}
		}
		committed, err := os.ReadFile(target)
		if err != nil {
			return err
		}
		if !bytes.Equal(committed, text) {
			return fmt.Errorf(`%s: is not what the types say: run "make generate"`, target)
		}
	}
	present, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err == nil && len(present) != count {
		err = fmt.Errorf("%s: has %d definitions, must have %d: one is generated from no type", folder, len(present), count)
	}
	return err
}
