package policy_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A budget bounds the packages outside the standard library and outside this
// module that the production code of a package reaches, counted with go list
// -deps. Importers compile, audit and update every one of them.
type budget struct {
	limit int
	// like, if set, allows exactly what that package reaches, and nothing else.
	like string
}

// budgets has a row for every public package of the root module. A row may
// stand here before its package.
var budgets = map[string]budget{
	".":         {}, // documentation only
	"reconcile": {}, // loops and queues fit into any program
	"diff":      {limit: 80},
	"apply":     {limit: 160},
	// For tests of any program that talks to an API server, whatever it is built on.
	"apply/applytest": {},
	// Readiness reads unstructured objects; a budget is for any HTTP client.
	"apply/readiness": {limit: 80},
	"apply/budget":    {},
	"reconcile/kube":  {limit: 160}, // watches with the same parts of client-go as apply
	// For tests of any program: a rest.Config and, for answers as those of kubectl, its templates.
	"reconcile/kube/kubetest": {limit: 110},
	// It joins apply and reconcile/kube, and adds nothing of others.
	"reconcile/operator": {limit: 160},
	// Its causes are those of readiness.
	"reconcile/external": {like: "apply/readiness"},
	"cloud":              {},
	"cloud/demand":       {},
	// As light as cloud: a provider needs nothing else.
	"cloud/local": {},
	// For tests of any provider and any program that uses one.
	"cloud/cloudtest": {},
	// Types of core/v1 and apps/v1, and the scheduler's own sum of requests.
	"cloud/kube": {limit: 90},
	// Nodes are written by a dynamic client, as apply writes objects.
	"cloud/kube/nodes": {limit: 160},
	"cloud/kube/pools": {like: "cloud/kube/nodes"},
	// It watches as reconcile/kube does.
	"cloud/kube/buffers": {limit: 160},
	// For tests of any controller, whatever it is built on.
	"reconcile/simtest": {},
	"ops":               {}, // files alone
	"snapshot":          {like: "internal/httpretry"},
	"statesync":         {like: "internal/httpretry"},
	// For tests of any store and server, whatever they are built on.
	"statesync/statesynctest": {like: "internal/httpretry"},
}

// bans are imports that production code of the root module must not reach, by
// the path of a package or of a folder of packages.
var bans = map[string]string{
	"k8s.io/client-go/kubernetes":                "it drags in 362 packages; take a dynamic or metadata client",
	"k8s.io/client-go/informers":                 "it drags in client-go/kubernetes; use a reflector of tools/cache",
	"k8s.io/client-go/dynamic/dynamicinformer":   "it drags in 502 packages; use a reflector of tools/cache",
	"k8s.io/client-go/metadata/metadatainformer": "it drags in client-go/informers; use a reflector of tools/cache",
	"k8s.io/client-go/restmapper":                "the caller has a mapper already; take a meta.RESTMapper",
	"sigs.k8s.io/controller-runtime":             "we fit into it without an import: Start(ctx) error is its Runnable",
	"github.com/aws":                             "a cloud SDK belongs into a module of its own under cloud/",
	"cloud.google.com/go":                        "a cloud SDK belongs into a module of its own under cloud/",
	"google.golang.org/api":                      "a cloud SDK belongs into a module of its own under cloud/",
	"github.com/Azure/azure-sdk-for-go":          "a cloud SDK belongs into a module of its own under cloud/",
	"modernc.org/sqlite":                         "a SQL driver belongs into the module statesync/sqlstore or into a program",
	"github.com/mattn/go-sqlite3":                "a SQL driver belongs into the module statesync/sqlstore or into a program",
	"github.com/ncruces/go-sqlite3":              "a SQL driver belongs into the module statesync/sqlstore or into a program",
	"github.com/jackc/pgx":                       "a SQL driver belongs into the module statesync/sqlstore or into a program",
	"github.com/lib/pq":                          "a SQL driver belongs into the module statesync/sqlstore or into a program",
	"github.com/go-sql-driver/mysql":             "a SQL driver belongs into the module statesync/sqlstore or into a program",
}

const retryClient = "github.com/hashicorp/go-retryablehttp"

// pureDirs are the packages that decide and do nothing else. A single file of
// another package, such as a plan.go or pool.go, joins them with the line
// [pureMark] before its package clause.
var pureDirs = []string{"diff"}

const pureMark = "//trueup:pure"

// uninstallable are modules that are never installed, and that may therefore
// have replace lines.
var uninstallable = []string{
	"internal/kube",
	"internal/published",
	"internal/published/cainjector",
	"internal/bench/peers",
	"internal/bench/wrangler",
	"internal/bench/sync",
	"internal/bench/kine",
	"internal/bench/pool",
	"internal/bench/agentjob",
}

// wireContract is generated code that programs on both ends of a wire share,
// also those outside of cmd.
const wireContract = "cmd/api"

const maxFile = 400 // lines

// rules are what is checked on the parsed files alone.
var rules = []struct {
	name  string
	check func(repo) []finding
}{
	{"banned imports", bannedImports},
	{"direction of imports", importDirection},
	{"tests of reconcile", reconcileTests},
	{"package doc", packageDoc},
	{"no replace", noReplace},
	{"no With functions", noWith},
	{"no Clock", noClock},
	{"no sleep", noSleep},
	{"no parent embedded", noParent},
	{"pure", pure},
	{"file length", fileLength},
	{"has tests", hasTests},
}

// under reports whether p is prefix or lies in that folder.
func under(p, prefix string) bool {
	return p == prefix || strings.HasPrefix(p, prefix+"/")
}

func overBudget(r repo, reach func(dir string) ([]string, error)) []finding {
	var found []finding
	dirs := map[string]bool{}
	for _, f := range r.production() {
		dirs[f.dir()] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		b, ok := budgets[dir]
		if !ok {
			if !slices.Contains(strings.Split(dir, "/"), "internal") {
				found = append(
					found,
					finding{
						dir,
						0,
						"has no row in budgets (internal/policy/rules_test.go): say how many packages its importers may be made to compile, and why",
					},
				)
			}
			continue
		}
		got, err := reach(dir)
		if err != nil {
			found = append(found, finding{dir, 0, err.Error()})
			continue
		}
		for _, ban := range slices.Sorted(maps.Keys(bans)) {
			if i := slices.IndexFunc(got, func(p string) bool { return under(p, ban) }); i >= 0 {
				found = append(found, finding{dir, 0, fmt.Sprintf("reaches %s: %s", got[i], bans[ban])})
			}
		}
		if b.like == "" {
			if len(got) > b.limit {
				found = append(
					found,
					finding{
						dir,
						0,
						fmt.Sprintf("reaches %d packages outside the standard library; its budget is %d: %s", len(got), b.limit, strings.Join(got, " ")),
					},
				)
			}
			continue
		}
		allowed, err := reach(b.like)
		if err != nil {
			found = append(found, finding{b.like, 0, err.Error()})
			continue
		}
		if more := slices.DeleteFunc(got, func(p string) bool { return slices.Contains(allowed, p) }); len(more) > 0 {
			found = append(found, finding{dir, 0, fmt.Sprintf("reaches what %s does not: %s", b.like, strings.Join(more, " "))})
		}
	}
	return found
}

func bannedImports(r repo) []finding {
	var found []finding
	for _, f := range r.production() {
		for p, at := range f.imports() {
			for ban, reason := range bans {
				if under(p, ban) {
					found = append(found, f.found(at, "imports %s: %s", p, reason))
				}
			}
			if under(p, retryClient) && !under(f.dir(), "internal/httpretry") {
				found = append(found, f.found(at, "imports %s: only internal/httpretry may; its defaults log and give up in ways we do not promise", p))
			}
		}
	}
	return found
}

func importDirection(r repo) []finding {
	var found []finding
	for _, f := range r.files {
		for p, at := range f.imports() {
			if !under(p, module) {
				continue
			}
			to := strings.TrimPrefix(strings.TrimPrefix(p, module), "/")
			switch {
			case f.dir() == "reconcile" && !f.test():
				found = append(found, f.found(at, "imports %s: reconcile stands on the standard library alone", p))
			case under(f.dir(), "diff") && under(to, "apply"):
				found = append(found, f.found(at, "imports %s: apply stands on diff, never the other way", p))
			case !f.test() && (under(f.dir(), "apply") && under(to, "reconcile/kube") || under(f.dir(), "reconcile/kube") && under(to, "apply")):
				found = append(found, f.found(at, "imports %s: apply and reconcile/kube do not know each other", p))
			case !f.test() && otherProgram(f.dir(), to):
				found = append(found, f.found(at, "imports %s: what two programs need is in cmd/internal or cmd/api", p))
			case under(to, "cmd") && f.module != "cmd" && !under(to, wireContract):
				found = append(found, f.found(at, "imports %s: programs are built on the packages; nothing is built on a program", p))
			case f.module == "." && r.moduleOf(to) != ".":
				found = append(found, f.found(at, "imports %s: the root module never requires a nested module", p))
			}
		}
	}
	return found
}

// otherProgram reports whether a package of one program imports one of another. The demo
// runs them all.
func otherProgram(from, to string) bool {
	program := func(dir string) string {
		rest, ok := strings.CutPrefix(dir, "cmd/")
		name, _, _ := strings.Cut(rest, "/")
		if !ok || name == "api" || name == "internal" || name == "e2e" {
			return ""
		}
		return name
	}
	a, b := program(from), program(to)
	return a != "" && b != "" && a != b && a != "demo"
}

func reconcileTests(r repo) []finding {
	var found []finding
	for _, f := range r.files {
		if f.dir() != "reconcile" || !f.test() {
			continue
		}
		for p, at := range f.imports() {
			first, _, _ := strings.Cut(p, "/")
			own := under(p, module)
			if own {
				b, ok := budgets[strings.TrimPrefix(p, module+"/")]
				own = ok && b == budget{}
			}
			if strings.Contains(first, ".") && !own {
				found = append(
					found,
					f.found(at, "imports %s: what a package's tests import lands in the go.sum of its importers; reconcile's have 0 lines", p),
				)
			}
		}
	}
	return found
}

func packageDoc(r repo) []finding {
	var found []finding
	for dir, files := range r.packages() {
		var docs []string
		for _, f := range files {
			if f.ast.Doc == nil {
				continue
			}
			docs = append(docs, f.path)
			first, text := "Package "+f.ast.Name.Name+" ", f.ast.Doc.Text()
			if f.ast.Name.Name == "main" {
				first = "Command " + path.Base(dir) + " "
			}
			if !strings.HasPrefix(text, first) {
				found = append(found, f.found(f.ast.Doc, "the package comment must start with %q", first))
			}
		}
		switch len(docs) {
		case 0:
			found = append(found, finding{dir, 0, "has no package comment: godoc shows nothing about it"})
		case 1:
		default:
			found = append(
				found,
				finding{dir, 0, "has several package comments; godoc joins them in the order of the files: " + strings.Join(docs, " ")},
			)
		}
	}
	return found
}

var (
	replaceLine = regexp.MustCompile(`^\s*replace\b`)
	nestedLine  = regexp.MustCompile(`^\s*(require\s+)?` + regexp.QuoteMeta(module) + `/`)
)

func noReplace(r repo) []finding {
	var found []finding
	for name, content := range r.mods {
		n := 0
		for line := range strings.Lines(content) {
			n++
			if replaceLine.MatchString(line) && !slices.Contains(uninstallable, path.Dir(name)) {
				found = append(
					found,
					finding{name, n, "has a replace: go install refuses such a module, and its importers do not see the line; use go.work"},
				)
			}
			if name == "go.mod" && nestedLine.MatchString(line) {
				found = append(found, finding{name, n, "requires a nested module: every user of the SDK would download it"})
			}
		}
	}
	return found
}

var withName = regexp.MustCompile(`^With([^a-z]|$)`)

func noWith(r repo) []finding {
	var found []finding
	for _, f := range r.files {
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && !f.test() && fn.Recv == nil && withName.MatchString(fn.Name.Name) {
				found = append(found, f.found(fn, "func %s: configuration is a struct whose zero value works, not option functions", fn.Name.Name))
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && !f.test() && strings.HasSuffix(strings.ToLower(spec.Name.Name), "option") {
				if _, ok := spec.Type.(*ast.FuncType); ok {
					found = append(found, f.found(spec, "type %s: configuration is a struct whose zero value works, not option functions", spec.Name.Name))
				}
			}
			return true
		})
	}
	return found
}

func noClock(r repo) []finding {
	var found []finding
	for _, f := range r.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && strings.EqualFold(spec.Name.Name, "clock") {
				found = append(found, f.found(spec, "type %s: use package time; tests use testing/synctest, and pure code takes now", spec.Name.Name))
			}
			if methods, ok := n.(*ast.InterfaceType); ok {
				for _, m := range methods.Methods.List {
					if len(m.Names) == 1 && m.Names[0].Name == "Now" {
						found = append(found, f.found(m, "an interface with Now: use package time; tests use testing/synctest, and pure code takes now"))
					}
				}
			}
			return true
		})
	}
	return found
}

// noParent finds structs that embed a pointer to a type of their own package: a reader cannot
// tell where a field of theirs comes from.
func noParent(r repo) []finding {
	var found []finding
	for _, f := range r.files { // of every module, but for the benchmarks
		if f.test() || under(f.dir(), "internal/bench") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			structure, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range structure.Fields.List {
				if star, ok := field.Type.(*ast.StarExpr); ok && len(field.Names) == 0 {
					if name, ok := star.X.(*ast.Ident); ok {
						found = append(found, f.found(field, "embeds *%s: give the field a name", name.Name))
					}
				}
			}
			return true
		})
	}
	return found
}

// noSleep finds a wait that no end of a context cuts short. The linter finds time.Sleep.
func noSleep(r repo) []finding {
	var found []finding
	for _, f := range r.files {
		choices := map[ast.Node]bool{} // of a select, which has others
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if choice, ok := n.(*ast.CommClause); ok {
				choices[choice.Comm] = true
			}
			statement, ok := n.(*ast.ExprStmt)
			if !ok || f.test() || choices[statement] {
				return true
			}
			if receive, ok := statement.X.(*ast.UnaryExpr); ok && receive.Op == token.ARROW && calls(receive.X, "time", "After") {
				found = append(found, f.found(statement, "waits for time.After alone: select on it and ctx.Done"))
			}
			return true
		})
	}
	return found
}

// calls reports whether an expression is a call of a function of a package.
func calls(e ast.Expr, pkg, name string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	of, ok := selector.X.(*ast.Ident)
	return ok && of.Name == pkg
}

func pure(r repo) []finding {
	var found []finding
	for _, f := range r.files {
		if f.test() || !slices.Contains(pureDirs, f.dir()) && !marked(f) {
			continue
		}
		timeName := ""
		for p, at := range f.imports() {
			switch p {
			case "context", "math/rand", "math/rand/v2", "crypto/rand":
				found = append(found, f.found(at, "imports %s: a plan takes values and returns values", p))
			case "time":
				timeName = "time"
				if name := at.(*ast.ImportSpec).Name; name != nil {
					timeName = name.Name
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found = append(found, f.found(n, "starts a goroutine: a plan takes values and returns values"))
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if ok && timeName != "" && x.Name == timeName &&
					slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}, n.Sel.Name) {
					found = append(found, f.found(n, "uses time.%s: a plan takes now as an argument", n.Sel.Name))
				}
			}
			return true
		})
	}
	return found
}

// marked reports whether the line [pureMark] stands before the package clause.
func marked(f goFile) bool {
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			if c.Pos() < f.ast.Package && c.Text == pureMark {
				return true
			}
		}
	}
	return false
}

func fileLength(r repo) []finding {
	var found []finding
	for _, f := range r.files {
		lines := bytes.Count(f.content, []byte("\n"))
		if lines > maxFile && !f.test() && !ast.IsGenerated(f.ast) {
			found = append(found, finding{f.path, 0, fmt.Sprintf("has %d lines, more than %d: look for the second concept in it", lines, maxFile)})
		}
	}
	return found
}

// hasTests leaves out folders of declarations without code, and programs: a
// main package holds only flags and wiring, and is tested from outside.
func hasTests(r repo) []finding {
	tested := map[string]bool{}
	for _, f := range r.files {
		tested[f.dir()] = tested[f.dir()] || f.test()
	}
	var found []finding
	for dir, files := range r.packages() {
		if !tested[dir] && files[0].ast.Name.Name != "main" && slices.ContainsFunc(files, hasCode) {
			found = append(found, finding{dir, 0, "has code and no test"})
		}
	}
	return found
}

func hasCode(f goFile) bool {
	return slices.ContainsFunc(f.ast.Decls, func(d ast.Decl) bool {
		gen, ok := d.(*ast.GenDecl)
		return !ok || gen.Tok != token.IMPORT && gen.Tok != token.CONST && gen.Tok != token.TYPE
	})
}
