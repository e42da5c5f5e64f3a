package policy_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// docRules are what is checked on comments and pages.
var docRules = []struct {
	name  string
	check func(repo) []finding
}{
	{"doc links", docLinks},
	{"links of pages", pageLinks},
	{"snippets", snippets},
	{"lines of pages", pageLines},
	{"words", words},
}

// docLink is a doc link: [Name], [Type.Member], [package.Name], [import/path.Name].
var docLink = regexp.MustCompile(`(^|[\s(*])\[\*?((?:[\w.-]+/)*[a-z][\w-]*\.)?([A-Z]\w*)(\.[A-Z]\w*)?\](?:[\s).,;:'?!-]|$)`)

// docLinks finds links in comments of production code to identifiers of this repository
// that are not there. go doc shows such a link as plain text.
func docLinks(r repo) []finding {
	declared := declarations(r)
	var found []finding
	for _, f := range r.files {
		if f.test() || ast.IsGenerated(f.ast) {
			continue
		}
		for _, group := range f.ast.Comments {
			for n, line := range strings.Split(group.Text(), "\n") {
				if strings.HasPrefix(line, "\t") {
					continue // code
				}
				for _, m := range docLink.FindAllStringSubmatch(line, -1) {
					dir, ok := f.linked(strings.TrimSuffix(m[2], "."))
					if ok && !declared[dir][m[3]+m[4]] {
						found = append(found, finding{f.path, f.line(group) + n, fmt.Sprintf("the link [%s%s%s] leads nowhere", m[2], m[3], m[4])})
					}
				}
			}
		}
	}
	return found
}

// linked returns the folder of the package that a doc link names, false if it is not one
// of this repository.
func (f goFile) linked(name string) (string, bool) {
	if name == "" {
		return f.dir(), true
	}
	if strings.Contains(name, "/") {
		return strings.TrimPrefix(name, module+"/"), under(name, module)
	}
	for p, at := range f.imports() {
		local := path.Base(p)
		if spec := at.(*ast.ImportSpec); spec.Name != nil {
			local = spec.Name.Name
		}
		if local == name && under(p, module) {
			return strings.TrimPrefix(p, module+"/"), true
		}
	}
	return "", false
}

// declarations returns the names that each folder declares: Name and Type.Member.
func declarations(r repo) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for dir, files := range r.packages() {
		names := map[string]bool{}
		for _, f := range files {
			for _, decl := range f.ast.Decls {
				declare(decl, names)
			}
		}
		all[dir] = names
	}
	return all
}

func declare(decl ast.Decl, names map[string]bool) {
	if fn, ok := decl.(*ast.FuncDecl); ok {
		if fn.Recv == nil {
			names[fn.Name.Name] = true
			return
		}
		ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				names[id.Name+"."+fn.Name.Name] = true
				return false
			}
			return true
		})
		return
	}
	for _, spec := range decl.(*ast.GenDecl).Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			for _, id := range spec.Names {
				names[id.Name] = true
			}
		case *ast.TypeSpec:
			names[spec.Name.Name] = true
			members(spec, names)
		}
	}
}

func members(spec *ast.TypeSpec, names map[string]bool) {
	var list *ast.FieldList
	switch t := spec.Type.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return
	}
	for _, field := range list.List {
		for _, id := range field.Names {
			names[spec.Name.Name+"."+id.Name] = true
		}
	}
}

var (
	codeSpan = regexp.MustCompile("`[^`]*`")
	pageLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// pageLinks finds links in pages to files, folders and headings that are not there.
func pageLinks(r repo) []finding {
	var found []finding
	for name, page := range r.pages {
		n := 0
		for line := range strings.Lines(page) {
			n++
			// Code has no links: a pattern such as `[a-z](b)` is none.
			for _, m := range pageLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
				target, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(target, "://") {
					continue
				}
				to := name
				if target != "" {
					to = path.Join(path.Dir(name), target)
				}
				if !r.there(to) {
					found = append(found, finding{name, n, fmt.Sprintf("the link to %s leads nowhere", m[1])})
				} else if anchor != "" && !slices.Contains(anchors(r.pages[to]), anchor) {
					found = append(found, finding{name, n, fmt.Sprintf("%s has no heading for #%s", to, anchor)})
				}
			}
		}
	}
	return found
}

// anchors returns the anchors of a page's headings as GitHub makes them.
func anchors(page string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		all = append(all, strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// snippets finds Go code in pages that is not, line by line, in a Go file: what is there
// is compiled, and tests run it.
func snippets(r repo) []finding {
	var all strings.Builder
	for _, f := range r.files {
		all.WriteString(dedented(string(f.content)))
		all.WriteString("\x00\n")
	}
	code := all.String()
	var found []finding
	for name, page := range r.pages {
		n, from, block := 0, 0, []string(nil)
		for line := range strings.Lines(page) {
			n++
			switch text := strings.TrimRight(line, "\n"); {
			case text == "```go" || strings.HasPrefix(text, "```golang") || strings.HasPrefix(text, "```go "):
				from, block = n, []string{}
			case text == "```" && block != nil:
				if !strings.Contains(code, "\n"+dedented(strings.Join(block, "\n"))+"\n") {
					found = append(found, finding{name, from, "this Go code is in no file of the repository: quote one that is tested"})
				}
				block = nil
			case block != nil:
				block = append(block, text)
			}
		}
	}
	return found
}

// pageWidth is the max number of columns of a line of prose in a page.
const pageWidth = 120

// pageLines finds lines of prose in pages that are too long to read. Tables and code are
// exempt.
func pageLines(r repo) []finding {
	var found []finding
	for name, page := range r.pages {
		n, code := 0, false
		for line := range strings.Lines(page) {
			n++
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			columns := utf8.RuneCountInString(line)
			if exempt := code || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    "); !exempt && columns > pageWidth {
				found = append(found, finding{name, n, fmt.Sprintf("%d columns, at most %d", columns, pageWidth)})
			}
		}
	}
	return found
}

// dedented returns the text without what its lines begin with in white space.
func dedented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t ")
	}
	return strings.Join(lines, "\n")
}

// worst are words that comments and pages do without, and what to write instead.
var worst = map[string]string{
	"whoever":            "name it: the caller, a reader",
	"nobody":             "name it: no manager, no reader",
	"somebody":           "name it: another manager, an administrator",
	"that which":         "name the noun",
	"what is to be done": "the plan",
	"what was done":      "the result",
	"worth nothing":      "discarded",
	"are to go":          "must be deleted",
	"be it":              "two sentences, or: even if",
	"mere repetition":    "retrying unchanged",
	"wish":               "desired state",
	"wishes":             "desired state",
	"setback":            "rejection",
	"doom":               "prune plan",
	"vigil":              "watchdog",
	"shelf":              "cache",
	"keeper":             "reconciler",
	"tidier":             "sweeper",
	"anew":               "again",
	"is to go":           "must be deleted",
	"ledger":             "record",
	"strays":             "untracked objects",
}

var worstWords = func() *regexp.Regexp {
	var all []string
	for word := range worst {
		all = append(all, word)
	}
	slices.Sort(all)
	return regexp.MustCompile(`(?i)\b(` + strings.Join(all, "|") + `)\b`)
}()

// words finds the worst words.
func words(r repo) []finding {
	var found []finding
	look := func(name string, line int, text string) {
		for _, word := range worstWords.FindAllString(text, -1) {
			found = append(found, finding{name, line, fmt.Sprintf("%q: %s", word, worst[strings.ToLower(word)])})
		}
	}
	for _, f := range r.files {
		if bytes.HasPrefix(f.content, []byte("// Code generated")) {
			continue
		}
		for _, group := range f.ast.Comments {
			for n, line := range strings.Split(group.Text(), "\n") {
				look(f.path, f.line(group)+n, line)
			}
		}
	}
	for name, page := range r.pages {
		n := 0
		for line := range strings.Lines(page) {
			n++
			look(name, n, line)
		}
	}
	return found
}
