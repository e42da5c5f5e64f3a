package policy_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// dependabotEntry is one ecosystem with its folders, which are globs of one level: * is not several folders.
var dependabotEntry = regexp.MustCompile(`- package-ecosystem: (\S+)\n\s+director(?:y|ies): (.+)\n`)

// dependabotFolders are the patterns of an ecosystem, from the root and without a slash before them.
func dependabotFolders(config, ecosystem string) (patterns []string) {
	for _, entry := range dependabotEntry.FindAllStringSubmatch(config, -1) {
		if entry[1] != ecosystem {
			continue
		}
		for folder := range strings.SplitSeq(strings.Trim(entry[2], "[]"), ",") {
			folder = strings.TrimPrefix(strings.Trim(strings.TrimSpace(folder), `"`), "/")
			patterns = append(patterns, path.Clean(folder))
		}
	}
	return patterns
}

// dependabotMisses returns the folders that no pattern has, and the patterns that have no folder.
func dependabotMisses(patterns, folders []string) (left, stale []string) {
	used := map[string]bool{}
	for _, folder := range folders {
		found := false
		for _, pattern := range patterns {
			if ok, err := path.Match(pattern, folder); ok && err == nil {
				found, used[pattern] = true, true
			}
		}
		if !found {
			left = append(left, folder)
		}
	}
	for _, pattern := range patterns {
		if !used[pattern] {
			stale = append(stale, pattern)
		}
	}
	return left, stale
}

// TestDependabotHasEveryModule: each folder with a go.mod or a package.json is in .github/dependabot.yml, and
// each of its patterns has such a folder.
func TestDependabotHasEveryModule(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile(filepath.Join(root, ".github", "dependabot.yml"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := readRepo(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for ecosystem, manifest := range map[string]string{"gomod": "go.mod", "npm": "package.json"} {
		var folders []string
		for name := range r.paths {
			if path.Base(name) == manifest {
				folders = append(folders, path.Dir(name))
			}
		}
		if len(folders) < 3 {
			t.Fatalf("%d folders with %s were found", len(folders), manifest)
		}
		left, stale := dependabotMisses(dependabotFolders(string(config), ecosystem), folders)
		for _, folder := range left {
			t.Errorf(".github/dependabot.yml: %s: no pattern has /%s, which has a %s: its dependencies get no updates", ecosystem, folder, manifest)
		}
		for _, pattern := range stale {
			t.Errorf(".github/dependabot.yml: %s: /%s has no folder with a %s", ecosystem, pattern, manifest)
		}
	}
}

// TestDependabotMisses shows what the rule catches: a pattern of one level leaves out what is deeper.
func TestDependabotMisses(t *testing.T) {
	t.Parallel()
	config := "  - package-ecosystem: gomod\n    directories: [\"/\", /a/*, \"/gone\"]\n    x: y\n" +
		"  - package-ecosystem: npm\n    directory: /n\n"
	left, stale := dependabotMisses(dependabotFolders(config, "gomod"), []string{".", "a/b", "a/b/c"})
	if strings.Join(left, " ") != "a/b/c" || strings.Join(stale, " ") != "gone" {
		t.Errorf("left %q, stale %q", left, stale)
	}
	if got := dependabotFolders(config, "npm"); len(got) != 1 || got[0] != "n" {
		t.Errorf("folders of npm: %q", got)
	}
}
