package modbuild

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

const (
	helm      = "helm"
	versitygw = "versitygw"
)

// Helm returns the path of the program helm, which it builds from internal/helm and keeps. The working
// directory must lie inside the trueup repository.
func Helm(ctx context.Context, progress io.Writer) (string, error) {
	return tool(ctx, progress, helm, regexp.MustCompile(`helm\.sh/helm/v4 (v\S+)`), func(ctx context.Context, b Builder) error {
		b.Say("building Helm %s from Go modules; the first time takes 1 to 3 minutes on 2 cores", b.Version)
		return b.Compile(ctx, helm, "-X helm.sh/helm/v4/internal/version.version="+b.Version, "helm.sh/helm/v4/cmd/helm")
	})
}

// Versitygw returns the path of the program versitygw, a server of S3, as Helm does.
func Versitygw(ctx context.Context, progress io.Writer) (string, error) {
	return tool(ctx, progress, versitygw, regexp.MustCompile(`versity/versitygw (v\S+)`), func(ctx context.Context, b Builder) error {
		b.Say("building versitygw %s from Go modules; the first time takes 1 to 3 minutes on 2 cores", b.Version)
		return b.Compile(ctx, versitygw, "", "github.com/versity/versitygw/cmd/versitygw")
	})
}

// tool returns the path of the program that a module of internal, of the same name, is built into.
func tool(
	ctx context.Context, progress io.Writer, name string, version *regexp.Regexp, build func(context.Context, Builder) error,
) (string, error) {
	r := Recipe{Name: name, Version: version, Build: build}
	source, err := findSource(name)
	if err != nil {
		return "", err
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			return "", err
		}
		r.Files = append(r.Files, File{Name: file, Content: content})
	}
	dir, err := r.Folder(ctx, progress)
	return filepath.Join(dir, name), err
}

// findSource returns the folder of a module in internal, looking upwards from the working directory.
func findSource(module string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		source := filepath.Join(at, "internal", module)
		if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
			return source, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no internal/%s/go.mod at or above %s: run inside the trueup repository", module, dir)
		}
	}
}
