package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fluxcd/pkg/ssa"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// growth measures what grows with the number of objects, each size in a process of its own.
func (b *bench) growth(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "growth-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // below the folder for temporary files
	for i := range growthNamespaces {
		if err := b.others.Namespace(ctx, growthNamespace(10*i)); err != nil {
			return err
		}
	}
	samples := map[string]string{}
	for _, way := range []string{"set", "parts", "flux"} {
		if samples[way], err = b.growthSamples(ctx, dir, way); err != nil {
			return fmt.Errorf("samples of %s: %w", way, err)
		}
	}
	samples["informer"], samples["peak"] = samples["set"], samples["set"]
	var failed error
	for _, s := range []struct {
		way, prefix string
		from, to    int
		ratios      []string
	}{
		{"set", "growth_", 1000, b.grownTo, []string{"sweep", "restart", "prune", "prune_nothing", "memory"}},
		{"peak", "growth_", 10_000, b.grownTo, []string{"memory_peak"}},
		{"parts", "growth_parts_", 100, b.grownTo / growthChildren, []string{"pass", "pass_same", "prune", "memory"}},
		{"flux", "growth_flux_", 1000, min(b.grownTo, 10_000), []string{"sweep"}},
		{"informer", "growth_informer_", 1000, min(b.grownTo, 100_000), []string{"memory"}},
	} {
		for n := s.from; n <= s.to && ctx.Err() == nil; n *= 10 {
			begun := time.Now()
			if err := b.grown(ctx, s.way, s.prefix, samples[s.way], n); err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s of %d: %w", s.way, n, err))
				fmt.Fprintf(os.Stderr, "bench: growth: %v\n", err)
			}
			fmt.Fprintf(os.Stderr, "bench: growth: %s of %d took %s\n", s.way, n, time.Since(begun).Round(time.Second))
		}
		for _, figure := range s.ratios {
			unit := "_us_"
			if strings.HasPrefix(figure, "memory") {
				unit = "_bytes_"
			}
			b.growthRatio(s.prefix+figure, unit, s.from, s.to)
		}
	}
	return errors.Join(failed, b.growthReal(ctx))
}

// growthRatio adds by how much a figure grows at the most from one of its sizes to a larger one, if each was measured.
func (b *bench) growthRatio(name, unit string, from, to int) {
	var costs []float64
	for n := from; n <= to; n *= 10 {
		cost, ok := b.book.Get(name + unit + strconv.Itoa(n))
		if !ok || cost.Value <= 0 {
			return
		}
		costs = append(costs, cost.Value)
	}
	b.book.Add(name+"_ratio", mostGrowth(costs), "x")
}

// mostGrowth is the greatest quotient of a cost and one before it, 1 for less than two costs.
func mostGrowth(costs []float64) float64 {
	most := 1.0
	for i, cost := range costs {
		if i == 0 {
			continue
		}
		if quotient := cost / slices.Min(costs[:i]); i == 1 || quotient > most {
			most = quotient
		}
	}
	return most
}

// powerOfTen returns an error for a number of objects that is no size of the stage.
func powerOfTen(n int) error {
	for size := 1000; size <= 1_000_000; size *= 10 {
		if n == size {
			return nil
		}
	}
	return fmt.Errorf("-grown-to: is %d, must be 1000, 10000, 100000 or 1000000", n)
}

// growthReal measures the smaller sizes on the real server.
func (b *bench) growthReal(ctx context.Context) error {
	for n := 1000; n <= b.grownReal; n *= 10 {
		begun := time.Now()
		if err := b.growthFigures(ctx, "growth_real_", n, "set", b.cluster.Kubeconfig); err != nil {
			return fmt.Errorf("real server, %d: %w", n, err)
		}
		fmt.Fprintf(os.Stderr, "bench: growth: real server, %d took %s\n", n, time.Since(begun).Round(time.Second))
	}
	return nil
}

// grown measures one size on a server of its own.
func (b *bench) grown(ctx context.Context, way, prefix, samples string, n int) error {
	objects := n
	if way == "parts" {
		objects *= growthChildren
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := exec.CommandContext(ctx, self, "-growth-serve", samples, "-growth", way, "-growth-n", strconv.Itoa(objects))
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	end, err := server.StdinPipe() // it ends with this process, however that ends
	if err != nil {
		return err
	}
	defer end.Close() //nolint:errcheck // nothing was written
	if err := server.Start(); err != nil {
		return err
	}
	defer func() {
		stop()
		_ = server.Wait() // it was killed
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return errors.New("the server has not begun")
	}
	return b.growthFigures(ctx, prefix, n, way, lines.Text())
}

// growthFigures has a process measure one size, and takes over its figures with the size in their
// names.
func (b *bench) growthFigures(ctx context.Context, prefix string, n int, way, at string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"-growth", way, "-growth-at", at, "-growth-n", strconv.Itoa(n)}
	if b.profiles != "" {
		args = append(args, "-growth-profiles", filepath.Join(b.profiles, prefix+strconv.Itoa(n)))
	}
	return b.childNamed(ctx, func(name string) string { return prefix + name + "_" + strconv.Itoa(n) }, self, args...)
}

// serveGrowth serves the objects of a growthWorld, prints its address, and ends with ctx or the input.
func serveGrowth(ctx context.Context, way, samples string, n int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the one that has started it is gone
		stop()
	}()
	text, err := os.ReadFile(samples)
	if err != nil {
		return err
	}
	var each []json.RawMessage
	if err := json.Unmarshal(text, &each); err != nil {
		return err
	}
	bodies := make([][]byte, len(each))
	for i := range each {
		bodies[i] = each[i]
	}
	server, err := newGrowthServer(newGrowthWorld(way == "parts"), n, bodies)
	if err != nil {
		return err
	}
	return serve(ctx, http.Handler(server), func(address string) error {
		if _, err := fmt.Fprintln(os.Stdout, "http://"+address); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
}

// growthSamples has a contender make one object of each form on the real server, and writes what
// the server has then to a file.
func (b *bench) growthSamples(ctx context.Context, dir, way string) (string, error) {
	r := &growthRun{world: newGrowthWorld(way == "parts"), config: b.side("growth").config}
	numbers := make([]int, len(r.world.forms))
	for form := range r.world.forms {
		numbers[form] = growthSample + r.world.forms[form].digits[0]
	}
	var err error
	if way == "flux" {
		err = r.fluxSamples(ctx, numbers)
	} else {
		err = r.ownSamples(ctx, numbers)
	}
	if err != nil {
		return "", err
	}
	var texts []string
	for form, i := range numbers {
		kind := r.world.forms[form].kind
		resource := b.others.Client.Resource(kind.GroupVersion().WithResource(r.world.forms[form].resource)).Namespace(growthNamespace(i))
		live, err := resource.Get(ctx, r.world.name(i), metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		text, err := live.MarshalJSON()
		if err != nil {
			return "", err
		}
		texts = append(texts, string(text))
		// The next contender makes it again.
		if err := resource.Delete(ctx, live.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return "", err
		}
	}
	file := filepath.Join(dir, way+".json")
	return file, os.WriteFile(file, []byte("["+strings.Join(texts, ",")+"]"), 0o600)
}

// ownSamples applies objects with package apply.
func (r *growthRun) ownSamples(ctx context.Context, numbers []int) error {
	applier, stop, err := r.live(ctx)
	if err != nil {
		return err
	}
	defer stop()
	objects := make([]*unstructured.Unstructured, len(numbers))
	for at, i := range numbers {
		objects[at] = r.world.object(i)
	}
	set, err := r.world.setOf(objects, numbers[0]/growthChildren)
	if err != nil {
		return err
	}
	return r.settle(ctx, applier, set)
}

// fluxSamples applies objects with flux.
func (r *growthRun) fluxSamples(ctx context.Context, numbers []int) error {
	manager, err := r.fluxManager()
	if err != nil {
		return err
	}
	objects, err := r.fluxObjects(manager, numbers...)
	if err != nil {
		return err
	}
	_, err = manager.ApplyAll(ctx, objects, ssa.DefaultApplyOptions())
	return err
}
