package main

import (
	"debug/buildinfo"
	"errors"
	"os"
	"path/filepath"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// bill writes the software bill of materials of a program, from what the go command has
// recorded in it: every module with its version and checksum.
func (r *release) bill(program, binary, revision string, at time.Time) (err error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	all := cyclonedx.NewBOM()
	all.Metadata = &cyclonedx.Metadata{
		Timestamp: at.Format(time.RFC3339),
		Component: &cyclonedx.Component{
			BOMRef: program, Type: cyclonedx.ComponentTypeApplication, Name: program, Version: r.version,
			Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
			Properties: &[]cyclonedx.Property{{Name: "vcs.revision", Value: revision}, {Name: "go.version", Value: info.GoVersion}},
		},
	}
	var components []cyclonedx.Component
	for _, dependency := range info.Deps {
		if dependency.Replace != nil {
			dependency = dependency.Replace
		}
		if dependency.Sum == "" {
			continue // a module of this repository
		}
		at := "pkg:golang/" + dependency.Path + "@" + dependency.Version
		components = append(components, cyclonedx.Component{
			BOMRef: at, PackageURL: at, Type: cyclonedx.ComponentTypeLibrary, Name: dependency.Path, Version: dependency.Version,
			Properties: &[]cyclonedx.Property{{Name: "go.sum", Value: dependency.Sum}},
		})
	}
	all.Components = &components
	into, err := os.Create(filepath.Join(r.out, program+".cdx.json"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, into.Close()) }()
	return cyclonedx.NewBOMEncoder(into, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(all)
}
