package operator_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

const jobsKind = "jobs.batch"

// badImage is an image whose migrations fail.
const badImage = "app:bad"

// past is what the judge knows of the migrations, by the UID of the Application.
type past struct {
	// ended has how the Jobs have ended, by their names, and ran the images of those that succeeded.
	ended map[string]map[string]string
	ran   map[string]map[string]bool
	// without has the Applications that had no migrations at some time.
	without map[string]bool
}

func newPast() past {
	return past{map[string]map[string]string{}, map[string]map[string]bool{}, map[string]bool{}}
}

// migrates reports whether migrations stand before a rollout.
func (a app) migrates() bool {
	return a.enabled("database") && a.Field("spec", "database", "migrations", "engine") != nil
}

// failed reports whether the migrations of the image have failed: the workload stays as it is.
func (a app) failed() bool {
	return a.migrates() && a.condition(v1alpha1.ConditionMigrations)["reason"] == "MigrationFailed"
}

func migrates(o simtest.Object) bool { return o.Label("app.kubernetes.io/component") == "migrations" }

// endOf returns the condition that a Job has ended with.
func endOf(job simtest.Object) string {
	all, _ := job.Field("status", "conditions").([]any)
	for _, each := range all {
		if c, _ := each.(map[string]any); c["status"] == "True" {
			return fmt.Sprint(c["type"])
		}
	}
	return ""
}

// imageOf returns the image of the first container of a pod, or of a pod template.
func imageOf(o simtest.Object, path ...string) string {
	containers, _ := o.Field(append(path, "spec", "containers")...).([]any)
	if len(containers) == 0 {
		return ""
	}
	first, _ := containers[0].(map[string]any)
	return fmt.Sprint(first["image"])
}

// runs returns how long a pod runs, and whether it succeeds. Only a pod of migrations ends.
func runs(w *simtest.World, pod simtest.Object) (time.Duration, bool) {
	if !migrates(pod) {
		return 0, true
	}
	dice := w.Dice("migration " + pod.Name())
	return time.Duration(1+dice.IntN(8)) * time.Second, imageOf(pod) != badImage
}

// runJobs is the controller of Jobs: one pod for each, whose end is the end of the Job.
func runJobs(w *simtest.World, c simtest.Change) {
	o := c.After
	if o == nil {
		o = c.Before
	}
	name := o.Name()
	switch owners, _ := o.Field("metadata", "ownerReferences").([]any); {
	case o["kind"] == "Job":
	case o["kind"] == "Pod" && migrates(o) && len(owners) == 1:
		owner, _ := owners[0].(map[string]any)
		name = fmt.Sprint(owner["name"])
	default:
		return
	}
	w.After(time.Duration(1+w.Dice("job "+name).IntN(1000))*time.Millisecond, func() {
		if job := w.Stored(jobsKind, o.Namespace(), name); job != nil && !job.Deleting() && endOf(job) == "" {
			runJob(w, job)
		}
	})
}

func runJob(w *simtest.World, job simtest.Object) {
	controller := w.As("job controller")
	end := func(kind string) {
		_ = controller.Update(jobsKind, job.Namespace(), job.Name(), func(o simtest.Object) { // it exists
			now := time.Now().UTC().Format(time.RFC3339)
			o.Set(0.0, "status", "active")
			o.Set([]any{map[string]any{"type": kind, "status": "True", "lastTransitionTime": now, "message": "one pod"}}, "status", "conditions")
		})
	}
	for _, pod := range w.AllStored("pods") {
		if pod.Owner() != job.UID() {
			continue
		}
		switch pod.Field("status", "phase") {
		case "Succeeded":
			end("Complete")
		case "Failed":
			end("Failed")
		}
		return
	}
	if job.Field("status", "startTime") != nil {
		end("Failed") // its pod is gone
		return
	}
	pod := simtest.Object{"apiVersion": "v1", "kind": "Pod", "spec": job.Field("spec", "template", "spec"), "metadata": map[string]any{
		"namespace": job.Namespace(), "name": job.Name() + "-" + job.UID(), "labels": job.Field("spec", "template", "metadata", "labels"),
		"ownerReferences": []any{map[string]any{
			"apiVersion": "batch/v1", "kind": "Job", "name": job.Name(), "uid": job.UID(), "controller": true, "blockOwnerDeletion": true,
		}},
	}}
	if controller.Create(pod) == nil {
		_ = controller.Update(jobsKind, job.Namespace(), job.Name(), func(o simtest.Object) { // it exists
			o.Set(1.0, "status", "active")
			o.Set(time.Now().UTC().Format(time.RFC3339), "status", "startTime")
		})
	}
}

// noteMigrations notes what happens, and blames the program for what a migration must never be.
func (p *platform) noteMigrations(w *simtest.World, c simtest.Change) {
	o, before := c.After, c.Before
	if o == nil {
		o = before
	}
	l, uid := p.migrations, o.Label(v1alpha1.LabelOwner)
	switch o["kind"] {
	case "Application":
		a := app{o}
		if c.After == nil {
			return
		}
		if !a.migrates() {
			l.without[a.UID()], l.ended[a.UID()] = true, nil // the next schema may be another one
		}
		if before != nil && before.Field("spec", "imageRef") != a.Field("spec", "imageRef") {
			for name, how := range l.ended[a.UID()] {
				if how == "Failed" {
					delete(l.ended[a.UID()], name) // it may be tried again
				}
			}
		}
	case "Job":
		if c.After == nil {
			if c.By != "program" {
				delete(l.ended[uid], o.Name()) // nothing shows that it has ended
			}
			return
		}
		if how := l.ended[uid][o.Name()]; c.By == "program" && before == nil && how != "" {
			w.Blame("Job %s is created, and was %s", o.Name(), how)
		}
		if how := endOf(o); how != "" {
			if l.ended[uid] == nil {
				l.ended[uid] = map[string]string{}
			}
			if l.ran[uid] == nil {
				l.ran[uid] = map[string]bool{}
			}
			l.ended[uid][o.Name()] = how
			l.ran[uid][imageOf(o, "spec", "template")] = how == "Complete" || l.ran[uid][imageOf(o, "spec", "template")]
		}
	case "Pod":
		if c.After == nil || !migrates(o) || o.Field("status", "phase") != "Running" {
			return
		}
		for _, other := range w.AllStored("pods") {
			if migrates(other) && other.UID() != o.UID() && other.Label(v1alpha1.LabelOwner) == uid && other.Field("status", "phase") == "Running" {
				w.Blame("pods %s and %s run migrations at once", o.Name(), other.Name())
			}
		}
	case "Deployment":
		image := imageOf(o, "spec", "template")
		rolled := c.After != nil && c.By == "program" && (before == nil || imageOf(before, "spec", "template") != image)
		if rolled && !l.without[uid] && !l.ran[uid][image] {
			w.Blame("%s is rolled out, and its migrations have not run", image)
		}
	}
}

// migrated returns what is wrong about what an Application says of its migrations.
func (p *platform) migrated(w *simtest.World, a app) error {
	c := a.condition(v1alpha1.ConditionMigrations)
	image := fmt.Sprint(a.Field("spec", "imageRef"))
	switch {
	case !a.migrates() && c != nil:
		return fmt.Errorf("it has no migrations, and says %v", c)
	case !a.migrates():
		return nil
	case a.failed() && a.Field("status", "phase") != "Failed":
		return fmt.Errorf("migrations have failed, and the phase is %v", a.Field("status", "phase"))
	case a.failed() && !strings.Contains(fmt.Sprint(c["message"]), "Job "):
		return fmt.Errorf("the failure is not explained: %v", c)
	case a.failed():
		d, l := w.Stored("deployments.apps", a.Namespace(), a.Name()), p.migrations
		// It may run since before there was a database.
		if d != nil && imageOf(d, "spec", "template") == image && !l.ran[a.UID()][image] && !l.without[a.UID()] {
			return errors.New("the image runs, and its migrations have failed")
		}
		before := a.Field("status", "migrations", "image")
		if before != nil && (d == nil || imageOf(d, "spec", "template") != before) {
			return fmt.Errorf("%v is not what the Deployment has", before)
		}
		return nil
	case c["status"] != "True":
		return fmt.Errorf("migrations: %v", c)
	case !p.migrations.ran[a.UID()][image]:
		return fmt.Errorf("the migrations of %s have not run, and it says %v", image, c)
	}
	return nil
}
