// Command rooms prints how the files of each package use one another: how many
// floors they form, how many references run up, and the largest group of files that
// all reach each other. It type-checks the packages, so a reference is one by name
// of a declaration, a method or a field, never a guess.
//
//	go run ./internal/build/rooms [-files] [pattern...]
//
// A file stands above all that it refers to. Where files refer to each other in a
// circle, they are ordered so that the fewest references run up.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	files := flag.Bool("files", false, "show the floor of each file, and the references that run up, with what they name")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *files, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "rooms:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, files bool, patterns []string) error {
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	packages, exports, err := list(ctx, patterns)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, p := range packages {
		arrows, err := p.arrows(exports)
		if err != nil {
			return err
		}
		b := build(p.GoFiles, arrows)
		name := strings.NewReplacer("/", "_", "-", "_").Replace(p.short())
		fmt.Fprintf(&text, "figure %s_floors %d floors\n", name, b.floors())
		fmt.Fprintf(&text, "figure %s_arrows_up %d references\n", name, len(b.up()))
		fmt.Fprintf(&text, "figure %s_knot %d files of %d\n", name, b.knot(), len(p.GoFiles))
		if files {
			b.show(&text)
		}
	}
	_, err = io.WriteString(out, text.String())
	return err
}

// listed is what the go command says of a package.
type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	DepOnly                 bool
	Module                  *struct{ Path string }
}

// short is the import path below its module.
func (p *listed) short() string {
	if p.Module == nil {
		return p.ImportPath
	}
	path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
	if _, nested, ok := strings.Cut(p.Module.Path, "/trueup/"); ok {
		path = strings.Trim(nested+"/"+path, "/")
	}
	return cmp.Or(path, "trueup")
}

// list returns the packages, and the files with the types of all that they import.
func list(ctx context.Context, patterns []string) (packages []listed, exports map[string]string, err error) {
	arguments := []string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,DepOnly,Module"}
	command := exec.CommandContext(ctx, "go", append(arguments, patterns...)...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list: %w", err)
	}
	exports = map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, fmt.Errorf("go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && len(p.GoFiles) > 1 {
			packages = append(packages, p)
		}
	}
	return packages, exports, nil
}

// arrows returns from each file the files whose declarations it refers to.
func (p *listed) arrows(exports map[string]string) (map[string]map[string]names, error) {
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no types of %s", path)
		}
		return os.Open(exports[path])
	})}
	checked, err := config.Check(p.ImportPath, fset, parsed, info)
	if err != nil {
		return nil, err
	}
	fileOf := func(at token.Pos) string { return filepath.Base(fset.Position(at).Filename) }
	found := map[string]map[string]names{}
	for ident, object := range info.Uses {
		if object.Pkg() != checked || !object.Pos().IsValid() {
			continue
		}
		from, to := fileOf(ident.Pos()), fileOf(object.Pos())
		if from == to {
			continue
		}
		if found[from] == nil {
			found[from] = map[string]names{}
		}
		if found[from][to] == nil {
			found[from][to] = names{}
		}
		found[from][to][ident.Name] = true
	}
	return found, nil
}

// names are what one file names of another; nil: nothing.
type names map[string]bool

// building is the files of a package, in an order in which few references run up.
type building struct {
	order  []string // from the ground up
	at     map[string]int
	arrows map[string]map[string]names
	groups [][]string
}

func build(files []string, arrows map[string]map[string]names) *building {
	b := &building{arrows: arrows, at: map[string]int{}, groups: groups(files, arrows)}
	for _, group := range b.groups {
		for _, file := range arrange(group, arrows) {
			b.at[file] = len(b.order)
			b.order = append(b.order, file)
		}
	}
	return b
}

func (b *building) knot() (largest int) {
	for _, group := range b.groups {
		largest = max(largest, len(group))
	}
	return largest
}

// up returns the references to a file that does not lie below.
func (b *building) up() (found [][2]string) {
	for _, from := range b.order {
		for _, to := range slices.Sorted(maps.Keys(b.arrows[from])) {
			if b.at[to] > b.at[from] {
				found = append(found, [2]string{from, to})
			}
		}
	}
	return found
}

// floor returns the floor of each file, from 1.
func (b *building) floor() map[string]int {
	floor := map[string]int{}
	for _, file := range b.order {
		floor[file] = 1
		for to := range b.arrows[file] {
			if b.at[to] < b.at[file] {
				floor[file] = max(floor[file], floor[to]+1)
			}
		}
	}
	return floor
}

func (b *building) floors() int {
	top := 0
	for _, n := range b.floor() {
		top = max(top, n)
	}
	return top
}

func (b *building) show(out *strings.Builder) {
	floor := b.floor()
	byFloor := slices.Clone(b.order)
	slices.SortStableFunc(byFloor, func(x, y string) int { return floor[y] - floor[x] })
	for _, file := range byFloor {
		fmt.Fprintf(out, "  floor %2d  %s\n", floor[file], file)
	}
	for _, group := range b.groups {
		if len(group) > 1 {
			fmt.Fprintf(out, "  all reach each other: %s\n", strings.Join(slices.Sorted(slices.Values(group)), " "))
		}
	}
	for _, arrow := range b.up() {
		named := slices.Sorted(maps.Keys(b.arrows[arrow[0]][arrow[1]]))
		fmt.Fprintf(out, "  up  %s -> %s: %s\n", arrow[0], arrow[1], strings.Join(named, " "))
	}
}

// groups returns the groups of files that all reach each other, each after all that it
// refers to (Tarjan).
func groups(files []string, arrows map[string]map[string]names) (found [][]string) {
	index, low, on := map[string]int{}, map[string]int{}, map[string]bool{}
	var stack []string
	var visit func(file string)
	visit = func(file string) {
		index[file] = len(index) + 1
		low[file] = index[file]
		stack, on[file] = append(stack, file), true
		for _, to := range slices.Sorted(maps.Keys(arrows[file])) {
			if index[to] == 0 {
				visit(to)
				low[file] = min(low[file], low[to])
			} else if on[to] {
				low[file] = min(low[file], index[to])
			}
		}
		if low[file] != index[file] {
			return
		}
		var group []string
		for {
			last := stack[len(stack)-1]
			stack, on[last] = stack[:len(stack)-1], false
			group = append(group, last)
			if last == file {
				break
			}
		}
		found = append(found, group)
	}
	for _, file := range files {
		if index[file] == 0 {
			visit(file)
		}
	}
	return found
}

// arrange orders the files of a group, from the ground up, so that few references run
// up: exactly the fewest up to 18 files, by moving one file at a time beyond.
func arrange(group []string, arrows map[string]map[string]names) []string {
	group = slices.Sorted(slices.Values(group))
	n := len(group)
	to := make([]uint64, n)
	for i, file := range group {
		for j, other := range group {
			if arrows[file][other] != nil {
				to[i] |= 1 << j
			}
		}
	}
	if n > 18 {
		return improve(group, to)
	}
	// best[s] is the fewest references up if the files of s lie at the bottom.
	best, last := make([]int, 1<<n), make([]int, 1<<n)
	for s := 1; s < 1<<n; s++ {
		best[s] = n * n
		for i := range n {
			if s>>i&1 == 0 {
				continue
			}
			below := s &^ (1 << i)
			// The file i lies above the others of s: its references to files outside of s run up.
			if cost := best[below] + ones(to[i]&^uint64(s)); cost < best[s] { //nolint:gosec // a set of at most 18
				best[s], last[s] = cost, i
			}
		}
	}
	order := make([]string, n)
	for s, at := 1<<n-1, n-1; s > 0; at-- {
		order[at] = group[last[s]]
		s &^= 1 << last[s]
	}
	return order
}

func ones(set uint64) (n int) {
	for ; set != 0; set &= set - 1 {
		n++
	}
	return n
}

// improve moves one file at a time while that leaves fewer references up.
func improve(group []string, to []uint64) []string {
	order := make([]int, len(group))
	for i := range order {
		order[i] = i
	}
	cost := func(order []int) (up int) {
		var below uint64
		for _, i := range order {
			below |= 1 << i
			up += ones(to[i] &^ below)
		}
		return up
	}
	for now := cost(order); ; {
		next, fewest := order, now
		for i := range order {
			rest := slices.Delete(slices.Clone(order), i, i+1)
			for j := range order {
				if moved := slices.Insert(slices.Clone(rest), j, order[i]); cost(moved) < fewest {
					next, fewest = moved, cost(moved)
				}
			}
		}
		if fewest == now {
			break
		}
		order, now = next, fewest
	}
	names := make([]string, len(order))
	for at, i := range order {
		names[at] = group[i]
	}
	return names
}
