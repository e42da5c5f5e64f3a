package operator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
)

// migration is the run of the migrations that an image needs before it is rolled out. The status
// records which have succeeded, and which has failed, so that none depends on a Job that is kept.
type migration struct {
	// command runs them. Nil: there are none.
	command []string
	// release identifies the image with its settings, asked the value of the annotation that asks
	// for another run, and job the Job of both.
	release, asked, job string
	// ran and failed are whether the Job has ended, as this pass has seen it.
	ran, failed bool
	// reason and message are what the condition says. No reason: it is not known in this pass.
	reason, message string
	// busy are the Jobs of other releases whose pods run, or whose success is not recorded yet.
	busy map[string]bool
	// others are other releases whose Jobs have succeeded, and that are not recorded yet.
	others []string
}

// migrationOf returns the run that an Application needs.
func (p *pass) migrationOf() (m migration) {
	spec := &p.subject.app.Spec
	if !spec.Database.Enabled || spec.ImageRef == "" {
		return m
	}
	if m.command = migrationCommand(&spec.Database.Migrations); m.command == nil {
		return m
	}
	settings, _ := json.Marshal(spec.Database.Migrations) // it has texts alone
	m.release = digest(string(spec.ImageRef), string(settings))
	if value := p.subject.app.Annotations[v1alpha1.AnnotationMigrate]; value != "" {
		m.asked = digest(value)
	}
	m.job = p.subject.names.Migration(digest(m.release, m.asked))
	return m
}

// digest returns 48 bits that identify texts.
func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:6])
}

// migrationCommand returns what runs the migrations, nil if nothing does.
func migrationCommand(m *v1alpha1.Migrations) []string {
	switch {
	case len(m.Command) > 0:
		return m.Command
	case m.Engine == v1alpha1.Prisma:
		return []string{"npx", "--no-install", "prisma", "migrate", "deploy", "--schema", path.Join(m.Path, "..", "schema.prisma")}
	case m.Engine == v1alpha1.Knex:
		return []string{"npx", "--no-install", "knex", "migrate:latest", "--migrations-directory", m.Path}
	default:
		return nil
	}
}

// recorded reports whether the status says that a release was run, as often as it was asked for.
func (p *pass) recorded(releases ...string) bool {
	m := &p.migration
	return slices.Contains(releases, m.release) && (m.asked == "" || m.asked == p.subject.app.Status.Migrations.Asked)
}

// migrated reports whether no migrations stand before the rollout.
func (p *pass) migrated() bool {
	return p.migration.command == nil || p.migration.ran || p.recorded(p.subject.app.Status.Migrations.Done...)
}

// next returns what follows the configs: the workload, or what runs the migrations that come before
// it. Until these have succeeded, the workload stays as it is.
func (p *pass) next(ctx context.Context, configs []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if p.subject.app.Spec.ImageRef == "" {
		return nil, nil
	}
	if p.held {
		return p.deleted(), nil
	}
	if p.migrated() {
		return p.workload(configs), p.findBusy(ctx)
	}
	p.held = true
	before, err := p.before(ctx, configs)
	if err != nil {
		return nil, err
	}
	objects := append(slices.Clone(before), p.account())
	if p.moved && p.exists(p.deploymentID()) {
		objects = append(objects, p.ingresses()...) // the Ingresses of the previous host are removed
	}
	if p.recorded(p.subject.app.Status.Migrations.Failed) {
		return objects, nil
	}
	seen, err := p.observeMigrations(ctx)
	if err != nil {
		return objects, err
	}
	p.others(seen)
	if job := seen.jobs[p.migration.job]; job != nil {
		err := p.follow(ctx, job, seen)
		if p.migrated() {
			p.held = false
			return p.workload(configs), err
		}
		return objects, err
	}
	if may, err := p.mayMigrate(ctx, seen); !may || err != nil {
		return objects, err
	}
	p.say(reasonMigrating, "Job %s is made", p.migration.job)
	return append(objects, p.migrationJob(configs)), nil
}

func (p *pass) say(reason, format string, args ...any) {
	p.migration.reason, p.migration.message = reason, fmt.Sprintf(format, args...)
}

// refusedJob says why the Job of the migrations could not be made.
func (p *pass) refusedJob(results []apply.Result) {
	for _, r := range results {
		if r.Err != nil && r.ID.Kind == "Job" && r.ID.Name == p.migration.job {
			cause := apply.CauseOf(r.Err)
			p.say(string(cause.Reason), "Job %s: %s", p.migration.job, cause.Message)
		}
	}
}

// What no event shows is looked at again: that a pod has gone, and that a quota has room.
const (
	goneAgain    = 5 * time.Second
	refusedAgain = 30 * time.Second
)

// follow finds out how far the Job of the migrations is.
func (p *pass) follow(ctx context.Context, job *batchv1.Job, seen migrations) error {
	m := &p.migration
	kind, ended := endOf(job)
	if m.ran = ended && kind == batchv1.JobComplete; m.ran {
		return nil
	}
	id := apply.ID{Group: batchv1.GroupName, Kind: "Job", Namespace: job.Namespace, Name: job.Name}
	cause, err := p.op.applier.Why(ctx, id)
	if err == nil && !ended && seen.alive == "" && job.Status.StartTime != nil {
		cause, err = p.op.applier.RefusedPods(ctx, job.Namespace, job.UID)
		p.soon(refusedAgain)
	}
	if err != nil {
		return err
	}
	cause.Message = masked(cause.Message, p.password)
	switch m.failed = ended; {
	case m.failed:
		p.say(reasonMigration, "Job %s: %s; another image, other settings of the migrations or another value of the annotation %s run one again",
			job.Name, cmp.Or(cause.Message, "it failed, and its pod is gone"), v1alpha1.AnnotationMigrate)
	case job.Spec.Suspend != nil && *job.Spec.Suspend:
		p.say(reasonMigrating, "Job %s is suspended", job.Name)
	case cause.Outlook == "" || cause.Outlook == readiness.Waiting:
		p.say(reasonMigrating, "Job %s runs", job.Name)
	default:
		p.say(string(cause.Reason), "Job %s: %s", job.Name, cause.Message)
	}
	return nil
}

// masked returns a text of a pod without the password that is in its variables, also as part of a URL.
func masked(text, password string) string {
	if password == "" {
		return text
	}
	_, inURL, _ := strings.Cut(url.UserPassword("", password).String(), ":")
	return strings.NewReplacer(password, "(password)", inURL, "(password)").Replace(text)
}

// endOf returns how a Job has ended. One whose pods have not ended yet has not ended either.
func endOf(job *batchv1.Job) (how batchv1.JobConditionType, ended bool) {
	if job.Status.Active > 0 || job.Status.Terminating != nil && *job.Status.Terminating > 0 {
		return "", false
	}
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == "True" {
			return c.Type, true
		}
	}
	return "", false
}

// mayMigrate reports whether the Job may be made: no other of the Application is under way, nor a pod
// of one that was deleted, and the Application is still the one that the pass has read. A Job whose
// image is no longer wanted, and whose pod has not started, is deleted.
func (p *pass) mayMigrate(ctx context.Context, seen migrations) (bool, error) {
	for _, name := range slices.Sorted(maps.Keys(seen.jobs)) {
		job := seen.jobs[name]
		if _, ended := endOf(job); ended {
			continue
		}
		p.say(reasonMigrating, "waits for Job %s of an earlier image", name)
		if seen.started[string(job.UID)] || job.DeletionTimestamp != nil {
			return false, nil
		}
		p.soon(goneAgain)
		id := apply.ID{Group: batchv1.GroupName, Kind: "Job", Namespace: job.Namespace, Name: name}
		_, err := p.op.applier.Delete(ctx, []apply.ID{id}, apply.DeleteOptions{Propagation: metav1.DeletePropagationForeground})
		return false, err
	}
	if seen.alive != "" {
		p.say(reasonMigrating, "waits for Pod %s, whose Job was deleted", seen.alive)
		p.soon(goneAgain)
		return false, nil
	}
	same, err := p.unchanged(ctx)
	if err == nil && !same {
		p.say(reasonMigrating, "the %s has changed meanwhile", p.subject.kind)
		p.soon(goneAgain)
	}
	return same, err
}

// unchanged reports whether the object is still as the pass has read it, as far as migrations go. The
// view of the operator may be older: an image of before must not be migrated, nor one twice.
func (p *pass) unchanged(ctx context.Context) (bool, error) {
	o := p.subject.object
	resource := appsResource
	if p.subject.home != nil {
		resource = previewsResource
	}
	found, err := p.op.client.Resource(resource).Namespace(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read the %s: %w", p.subject.kind, err)
	}
	var now struct {
		Status v1alpha1.ApplicationStatus `json:"status"`
	}
	if err := into(found.Object, &now); err != nil {
		return false, err
	}
	key := v1alpha1.AnnotationMigrate
	return found.GetUID() == o.GetUID() && found.GetGeneration() == o.GetGeneration() && found.GetDeletionTimestamp() == nil &&
		found.GetAnnotations()[key] == o.GetAnnotations()[key] &&
		reflect.DeepEqual(now.Status.Migrations, p.subject.app.Status.Migrations), nil
}

// findBusy finds out which Jobs of other releases still run: they are not deleted.
func (p *pass) findBusy(ctx context.Context) error {
	others := false
	for o := range p.op.live.Part(string(p.subject.app.UID)) {
		others = others || o.ID.Kind == "Job" && o.ID.Name != p.migration.job
	}
	if !others || p.migration.command == nil {
		return nil
	}
	seen, err := p.observeMigrations(ctx)
	p.others(seen)
	p.migration.busy = map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(seen.jobs)) {
		job := seen.jobs[name]
		_, ended := endOf(job)
		runs := !ended && seen.started[string(job.UID)]
		if runs {
			p.say("", "Job %s of another image runs", name)
		}
		p.migration.busy[name] = runs || slices.Contains(p.migration.others, job.Labels[labelRelease])
	}
	return err
}

// others finds releases whose Job has succeeded after another image had taken their place.
func (p *pass) others(seen migrations) {
	for _, name := range slices.Sorted(maps.Keys(seen.jobs)) {
		job := seen.jobs[name]
		release, done := job.Labels[labelRelease], p.subject.app.Status.Migrations.Done
		if how, ended := endOf(job); !ended || how != batchv1.JobComplete || name == p.migration.job {
			continue
		}
		if release != "" && !slices.Contains(done, release) {
			p.migration.others = append(p.migration.others, release)
		}
	}
}

// keepsJob reports whether a Job is not pruned. What was not looked at stays.
func (p *pass) keepsJob(name string) bool {
	return p.held || name == p.migration.job || p.migration.command != nil && p.migration.busy[name]
}

// fillMigrations reports the migrations, and records which have ended.
func (p *pass) fillMigrations(s *v1alpha1.ApplicationStatus) {
	m, kind := &p.migration, v1alpha1.ConditionMigrations
	if !p.subject.app.Spec.Database.Enabled {
		s.Migrations = v1alpha1.MigrationsStatus{} // the next schema is another one
	}
	if m.command == nil {
		s.Migrations.Image = "" // images are rolled out that are not recorded
		meta.RemoveStatusCondition(&s.Conditions, kind)
		return
	}
	was := meta.FindStatusCondition(s.Conditions, kind)
	s.Migrations.Done = remember(s.Migrations.Done, m.others...)
	switch {
	case m.ran:
		s.Migrations = v1alpha1.MigrationsStatus{Done: remember(s.Migrations.Done, m.release), Asked: m.asked}
	case m.failed:
		s.Migrations.Failed, s.Migrations.Asked = m.release, m.asked
	case p.migrated():
		s.Migrations.Failed = "" // the image before it is wanted again
	}
	if p.migrated() && !p.held {
		s.Migrations.Image = p.subject.app.Spec.ImageRef
	}
	switch {
	case p.migrated():
		set(s, kind, true, reasonReady, m.message)
	case m.reason != "":
		set(s, kind, false, m.reason, m.message)
	case p.recorded(s.Migrations.Failed) && (was == nil || was.Reason != reasonMigration):
		set(s, kind, false, reasonMigration, "they have failed for this image before")
	case was == nil || was.Status == metav1.ConditionTrue:
		set(s, kind, false, reasonWaiting, p.waitsFor())
	}
}

// maxReleases is how many releases are remembered that were migrated.
const maxReleases = 16

// remember puts releases at the end of those that were migrated.
func remember(done []string, releases ...string) []string {
	for _, release := range releases {
		done = append(slices.DeleteFunc(slices.Clone(done), func(r string) bool { return r == release }), release)
	}
	return done[max(0, len(done)-maxReleases):]
}
