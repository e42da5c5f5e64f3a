// Command rename moves the repository to another owner or host: it changes the path of the
// modules and the repository of the images wherever they are written, in go.mod files,
// imports, pages, manifests and .proto files, and generates the code of the latter again.
//
//	go run ./internal/build/rename -module github.com/acme/trueup [-images ghcr.io/acme/trueup]
//
// Run it from the root of the repository. A second run with the same names changes nothing.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	var to names
	flag.StringVar(&to.module, "module", "", "path of the root module, such as github.com/acme/trueup (required)")
	flag.StringVar(&to.images, "images", "", "repository of the images; default: ghcr.io/acme/trueup for github.com/acme/trueup")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, ".", to)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rename:", err)
		os.Exit(1)
	}
}

// names are what the repository is called by.
type names struct {
	module string // path of the root module
	images string // repository of the images, without the name of the program
}

func run(ctx context.Context, root string, to names) error {
	changed, err := rename(root, to)
	if err != nil {
		return err
	}
	fmt.Printf("%d files are changed\n", len(changed))
	if !slices.ContainsFunc(changed, func(name string) bool { return filepath.Ext(name) == ".proto" }) {
		return nil
	}
	if err := generate(ctx, root); err != nil {
		return err
	}
	fmt.Println("The code of the .proto files is generated. Next: name people in .github/CODEOWNERS, make tidy, make lint, make test.")
	return nil
}

// generate writes the code of the .proto files, which has the paths as numbers of bytes, too.
func generate(ctx context.Context, root string) error {
	work, err := filepath.Abs(filepath.Join(root, "go.work"))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "./cmd/api/ctrl", "-update")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOWORK="+work)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("generate the code of the .proto files: %w\n%s", err, out)
	}
	return nil
}

// A module of a major above 1 would have the major at its end, and all that imports it.
var (
	majorVersion = regexp.MustCompile(`/v[0-9]+$`)
	modulePath   = regexp.MustCompile(`^[a-z0-9.-]+\.[a-z]+(/[A-Za-z0-9][A-Za-z0-9._-]*)+$`)
	imagesPath   = regexp.MustCompile(`^[a-z0-9.:-]+(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$`)
	moduleLine   = regexp.MustCompile(`(?m)^module (\S+)$`)
	imagesLine   = regexp.MustCompile(`(?m)^REPO \?= (\S+)$`)
)

// check fills in the repository of the images, and returns an error for names that cannot be.
func (to *names) check() error {
	if !modulePath.MatchString(to.module) {
		return fmt.Errorf("-module: is %q, must be a path like github.com/acme/trueup", to.module)
	}
	if majorVersion.MatchString(to.module) {
		return fmt.Errorf("-module: is %q, must not end in a major version: the modules are below 2", to.module)
	}
	if to.images == "" {
		path, hub := strings.CutPrefix(to.module, "github.com/")
		if !hub {
			return fmt.Errorf("-images: is required, such as registry.example.com/team/trueup: %s is not on github.com", to.module)
		}
		to.images = "ghcr.io/" + strings.ToLower(path)
	}
	if !imagesPath.MatchString(to.images) {
		return fmt.Errorf("-images: is %q, must be like ghcr.io/acme/trueup, in lower case", to.images)
	}
	return nil
}

// now reads what the repository is called.
func now(root string) (names, error) {
	found := names{}
	for _, one := range []struct {
		file string
		line *regexp.Regexp
		into *string
	}{{"go.mod", moduleLine, &found.module}, {"Makefile", imagesLine, &found.images}} {
		text, err := os.ReadFile(filepath.Join(root, one.file))
		if err != nil {
			return found, err
		}
		match := one.line.FindSubmatch(text)
		if match == nil {
			return found, fmt.Errorf("%s: has no line %s", one.file, one.line)
		}
		*one.into = string(match[1])
	}
	return found, nil
}

// owner returns the account of a module, or what stands in its place on another host.
func owner(module string) string { return strings.Split(module, "/")[1] }

// rename changes the files below root, and returns the names of those that changed.
func rename(root string, to names) (changed []string, err error) {
	if err := to.check(); err != nil {
		return nil, err
	}
	from, err := now(root)
	if err != nil || from == to {
		return nil, err
	}
	// One pass: a new name that contains the other old one is not changed twice.
	replace := strings.NewReplacer(from.module, to.module, from.images, to.images)
	owners := strings.NewReplacer("@"+owner(from.module), "@"+owner(to.module))
	built := []string{filepath.Join(root, "bin"), filepath.Join(root, "dist")}
	err = filepath.WalkDir(root, func(path string, file fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if file.IsDir() {
			if slices.Contains([]string{".git", "node_modules"}, file.Name()) || slices.Contains(built, path) {
				return fs.SkipDir
			}
			return nil
		}
		if !file.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		result := []byte(replace.Replace(string(text)))
		if path == filepath.Join(root, ".github", "CODEOWNERS") {
			result = []byte(owners.Replace(string(text)))
		}
		if bytes.Equal(text, result) || bytes.IndexByte(text, 0) >= 0 {
			return nil
		}
		if filepath.Ext(path) == ".go" {
			// Imports are in the order of their paths.
			if sorted, err := format.Source(result); err == nil {
				result = sorted
			}
		}
		info, err := file.Info()
		if err != nil {
			return err
		}
		changed = append(changed, path)
		return os.WriteFile(path, result, info.Mode().Perm())
	})
	return changed, err
}
