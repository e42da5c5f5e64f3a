package operator_test

import (
	"errors"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// judgeWrite blames the program for a write to a service that it must never make.
func (p *platform) judgeWrite(w *simtest.World, name string, before, after *thing) {
	if _, stranger := p.strangers[name]; stranger {
		w.Blame("%s is of others, and is written", name)
	}
	if after != nil && len(after.marks()) == 0 && (before == nil || len(before.marks()) == 0) {
		w.Blame("%s has no mark", name)
	}
	if before == nil {
		return
	}
	left := map[string]external.Mark{}
	if after != nil {
		left = after.marks()
	} else {
		p.judgeRemoval(w, name, before)
	}
	live := apps(w)
	for key, was := range before.marks() {
		is, stays := left[key]
		same := is.Namespace == was.Namespace && is.Name == was.Name && is.Cluster == was.Cluster
		owner, lasts := live[was.UID]
		switch {
		case stays && same && (is.UID == was.UID || was.Retained):
		case lasts && !was.Retained && !p.off[was.UID][name] && !p.excluded(*before, was):
			w.Blame("%s is of %s/%s, which lasts, and is taken from it: %+v", name, owner.Namespace(), owner.Name(), is)
		case stays && !p.excluded(*before, was):
			w.Blame("%s is of %s/%s, and is given to %s/%s", name, was.Namespace, was.Name, is.Namespace, is.Name)
		}
	}
}

// judgeRemoval blames the program for the removal of what is retained, or used.
func (p *platform) judgeRemoval(w *simtest.World, name string, t *thing) {
	for _, m := range t.marks() {
		if m.Name == retaining {
			w.Blame("%s is removed, and is to be retained", name)
		}
		for _, pod := range w.AllStored("pods") {
			containers, _ := pod.Field("spec", "containers").([]any)
			uses := pod.Label(v1alpha1.LabelOwner) == m.UID && pod.Field("status", "phase") == "Running" &&
				(len(containers) == 2 || migrates(pod))
			if uses && serviceOf(name) == theDatabase {
				w.Blame("%s is removed, and pod %s uses it", name, pod.Name())
			}
		}
	}
}

// excluded reports whether a realm is no longer shared with the namespace of an object.
func (p *platform) excluded(t thing, m external.Mark) bool {
	text, isRealm := t.attributes()["platform.internal/home"]
	home, _ := external.ParseMark(text)
	return isRealm && home.Namespace != m.Namespace && p.unshared[home.Namespace+"/"+m.Name]
}

// note is called after each change in the cluster.
func (p *platform) note(w *simtest.World, c simtest.Change) {
	if c.After == nil {
		return
	}
	switch c.After["kind"] {
	case "Application":
		a := app{c.After}
		if p.off[a.UID()] == nil {
			p.off[a.UID()] = map[string]bool{}
		}
		for name, wanted := range a.wants() {
			p.off[a.UID()][name] = p.off[a.UID()][name] || !wanted
		}
		if !a.enabled("auth") || a.Field("spec", "auth", "sharedWith") == nil {
			p.unshared[a.Namespace()+"/"+a.Name()] = true
		}
	case "Deployment":
		if c.By == "autoscaler" {
			p.scaled[c.After.UID()] = c.After.Field("spec", "replicas")
		}
	case "Pod":
		if c.After.Field("status", "phase") == "Running" && (c.Before == nil || c.Before.Field("status", "phase") != "Running") {
			if secret := w.Stored("secrets", c.After.Namespace(), c.After.Label(v1alpha1.LabelApp)+"-db"); secret != nil {
				p.reads[c.After.UID()] = fmt.Sprint(secret.Field("data", "DB_PASSWORD"))
			}
		}
	}
}

// stablePassword is a check: the program writes no Secret without a password, and replaces none,
// unless a rotation is asked for.
func stablePassword(_ *simtest.World, c simtest.Change) error {
	if c.By != "program" || c.After == nil || c.After["kind"] != "Secret" {
		return nil
	}
	if password, _ := c.After.Field("data", "DB_PASSWORD").(string); password == "" {
		return errors.New("a Secret is written without a password")
	}
	if c.Before == nil {
		return nil
	}
	was, is := c.Before.Field("data", "DB_PASSWORD"), c.After.Field("data", "DB_PASSWORD")
	rotation := func(o simtest.Object) any { return o.Field("metadata", "annotations", v1alpha1.AnnotationRotate) }
	rotates := rotation(c.Before) != rotation(c.After)
	if was != nil && was != is && !rotates {
		return errors.New("the password is replaced, and no rotation was asked for")
	}
	return nil
}
