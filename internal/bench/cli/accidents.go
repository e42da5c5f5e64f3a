package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// accident is what goes wrong after a correct apply of the folder and before a prune with what
// it returns. No object may be lost then.
type accident struct {
	name    string
	happens func(context.Context, side, folder) (folder, error)
}

func accidents() []accident {
	return []accident{
		{"half_read", func(_ context.Context, _ side, f folder) (folder, error) {
			return f, errors.Join(f.cut(1), os.Remove(f.file(3)))
		}},
		// The namespace is that of a mistaken flag: it has the same application, with more objects.
		{"other_namespace", func(_ context.Context, _ side, f folder) (folder, error) {
			meant := folder{filepath.Join(f.dir+"-meant", app)}
			return meant, meant.write(objects(80))
		}},
		{"rename", func(_ context.Context, _ side, f folder) (folder, error) {
			data, err := os.ReadFile(f.file(0))
			if err != nil {
				return f, err
			}
			renamed := strings.Replace(string(data), "name: "+objects(1)[0].name, "name: "+prefix+"renamed", 1)
			return f, os.WriteFile(f.file(0), []byte(renamed), 0o600)
		}},
		{"foreign_copy", func(ctx context.Context, s side, f folder) (folder, error) {
			return f, s.copyObject(ctx, objects(1)[0].name)
		}},
		{"killed", func(ctx context.Context, s side, f folder) (folder, error) {
			if err := f.write(objects(400)); err != nil {
				return f, err
			}
			return f, s.kill(ctx, f, 110)
		}},
	}
}

// accidents counts the objects that each tool deletes wrongly.
func (b *bench) accidents(ctx context.Context) error {
	for _, t := range b.tools {
		if t.prune == nil {
			continue
		}
		total := 0
		for _, a := range accidents() {
			lost, err := b.accident(ctx, t, a)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", t.name, a.name, err)
			}
			total += lost
		}
		b.add("cli_wrong_deletions", t, float64(total), "objects")
	}
	return nil
}

// accident returns how many objects of the namespace are lost.
func (b *bench) accident(ctx context.Context, t tool, a accident) (int, error) {
	s, err := b.side(ctx, strings.ReplaceAll(a.name, "_", "-"), t)
	if err != nil {
		return 0, err
	}
	f, err := b.folder(s, 100)
	if err != nil {
		return 0, err
	}
	if err := s.must(ctx, t.prune(f)); err != nil {
		return 0, err
	}
	if f, err = a.happens(ctx, s, f); err != nil {
		return 0, err
	}
	before, err := s.uids(ctx)
	if err != nil {
		return 0, err
	}
	if len(before) < 100 || len(before) >= 400 { // 400 are what a killed apply was to make
		return 0, fmt.Errorf("%d objects before the prune", len(before))
	}
	ended, err := s.call(ctx, t.prune(f))
	if err != nil {
		return 0, err
	}
	after, err := s.uids(ctx)
	if err != nil {
		return 0, err
	}
	maps.DeleteFunc(before, func(name, uid string) bool { return after[name] == uid })
	lost := slices.Sorted(maps.Keys(before))
	b.say("accident: %s %s: lost %d, status %d: %s", t.name, a.name, len(lost), ended.status, last(ended))
	if a.name == "killed" && t.name == trueup && len(after) != 400 {
		return 0, fmt.Errorf("%d objects of 400 after the run that followed: %s", len(after), ended.errs)
	}
	return len(lost), nil
}

// last is the last line of an answer.
func last(a answer) string {
	lines := strings.Split(strings.TrimSpace(a.out+"\n"+a.errs), "\n")
	return lines[len(lines)-1]
}

// copyObject is what "kubectl get -o yaml", another name, and "kubectl create" do: an object
// of another owner, with all labels and annotations.
func (s side) copyObject(ctx context.Context, name string) error {
	out, err := s.Kubectl(ctx, "get", "configmap", name, "-n", s.namespace, "-o", "json")
	if err != nil {
		return err
	}
	var found map[string]any
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		return err
	}
	metadata, _ := found["metadata"].(map[string]any)
	metadata["name"] = prefix + "foreign"
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		delete(metadata, field)
	}
	data, err := json.Marshal(found)
	if err != nil {
		return err
	}
	path := filepath.Join(s.Dir, s.namespace+".json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	_, err = s.Kubectl(ctx, "create", "-f", path)
	return err
}

// kill kills an apply once there are so many objects.
func (s side) kill(ctx context.Context, f folder, from int) error {
	cmd := s.command(ctx, s.prune(f))
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("the apply ended before it was killed: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
		found, err := s.uids(ctx)
		if err != nil || len(found) >= from {
			killed := errors.Join(err, cmd.Process.Kill())
			if exit, ok := errors.AsType[*exec.ExitError](<-ended); killed == nil && (!ok || exit.Exited()) {
				killed = errors.New("the apply was not killed")
			}
			return killed
		}
	}
}
