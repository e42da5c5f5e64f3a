package servertest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

const replayGroup = "replay.example.com"

// TestSequencesOfWritersAgreeWithTheServer replays the sequences of writers that
// the tests of structured-merge-diff hold on a real API server. After each, every
// manager that has applied is asked about its last object, which it wants again,
// and about each of its earlier ones, as a changed desired state. The oracle is what a
// forced apply leaves (dry run): the digest must have changed exactly if that
// apply changes something, Fields must name exactly the difference, and Covers
// must know what is owned.
func TestSequencesOfWritersAgreeWithTheServer(t *testing.T) {
	if testing.Short() {
		t.Skip("long: many objects")
	}
	t.Parallel()
	sequences, known := readSequences(t)
	replayAll(t, "sequences", sequences, known, 60)
}

// TestPairsOfObjectsAgreeWithTheServer does the same with the pairs of objects
// that structured-merge-diff compares in its tests: one applied, replaced by the
// other, taken over, and back.
func TestPairsOfObjectsAgreeWithTheServer(t *testing.T) {
	if testing.Short() {
		t.Skip("long: many objects")
	}
	t.Parallel()
	pairs, known := readPairs(t)
	replayAll(t, "pairs", pairs, known, 60)
}

func replayAll(t *testing.T, what string, sequences []sequence, known schemas, least int) {
	t.Helper()
	s := newServer(t)
	reasons := install(t, s, sequences, known)
	replayed, questions, agreed, left := 0, 0, 0, 0
	for i, seq := range sequences {
		if seq.reason == "" {
			seq.reason = seq.unknown(known)
		}
		if seq.reason == "" {
			seq.reason = reasons[seq.parser]
		}
		r := &replay{server: s, name: fmt.Sprintf("case-%d", i), seq: seq, applied: map[string]*applied{}}
		if seq.reason == "" {
			seq.reason = r.run(t)
		}
		if seq.reason != "" {
			left++
			t.Logf("left out: %s: %s", seq.name, seq.reason)
			continue
		}
		replayed++
		asked, right := r.judgeAll(t)
		questions += asked
		agreed += right
	}
	t.Logf("figure diff_%s_replayed %d cases", what, replayed)
	t.Logf("figure diff_%s_left_out %d cases", what, left)
	t.Logf("figure diff_%s_questions %d questions", what, questions)
	t.Logf("figure diff_%s_agreed %d questions", what, agreed)
	require.Greater(t, replayed, least, "the cases are not found any more")
}

// judgeAll asks every manager about every object that it has applied.
func (r *replay) judgeAll(t *testing.T) (questions, agreed int) {
	t.Helper()
	for _, manager := range slices.Sorted(maps.Keys(r.applied)) {
		for i, desired := range r.applied[manager].objects {
			latest := i == len(r.applied[manager].objects)-1
			questions++
			if err := r.judge(t, manager, desired, latest); err != nil {
				t.Errorf("%s: %s, object %d: %v", r.seq.name, manager, i, err)
				continue
			}
			agreed++
		}
	}
	return questions, agreed
}

// unknown returns why a sequence's versions cannot be served, if so.
func (seq *sequence) unknown(known schemas) string {
	d, ok := known[seq.parser]
	if !ok {
		return "its schema " + seq.parser + " is computed"
	}
	for _, o := range seq.ops {
		if seq.parser != "DeducedParser" && d.root == "" {
			if _, err := known.open(seq.parser, o.version); err != nil {
				return "version " + o.version + " has no type"
			}
		}
	}
	return ""
}

func kindOf(parser string) string {
	return strings.ToUpper(parser[:1]) + strings.ToLower(parser[1:])
}

// install makes a CustomResourceDefinition of each schema, and returns why it
// could not, by schema.
func install(t *testing.T, s *server, sequences []sequence, known schemas) map[string]string {
	t.Helper()
	reasons := map[string]string{}
	versions := map[string]map[string]bool{}
	for _, seq := range sequences {
		if seq.reason != "" || seq.unknown(known) != "" {
			continue
		}
		if versions[seq.parser] == nil {
			versions[seq.parser] = map[string]bool{}
		}
		for _, o := range seq.ops {
			versions[seq.parser][o.version] = true
		}
	}
	for _, parser := range slices.Sorted(maps.Keys(versions)) {
		var served []any
		var err error
		for _, version := range slices.Sorted(maps.Keys(versions[parser])) {
			root := known[parser].root
			if root == "" {
				root = version
			}
			var openAPI map[string]any
			if openAPI, err = known.open(parser, root); err != nil {
				break
			}
			served = append(served, map[string]any{
				"name": version, "served": true, "storage": len(served) == 0, "schema": map[string]any{"openAPIV3Schema": openAPI},
			})
		}
		if err == nil {
			err = s.define(t, replayGroup, kindOf(parser), served)
		}
		if err != nil {
			reasons[parser] = "no such schema on a server: " + err.Error()
		}
	}
	return reasons
}

// define makes a CustomResourceDefinition and waits until it is served.
func (s *server) define(t *testing.T, group, kind string, versions []any) error {
	t.Helper()
	plural := strings.ToLower(kind) + "s"
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind},
			"versions": versions,
		},
	}}
	_, err := s.tryApply(t.Context(), "setup", crd, metav1.ApplyOptions{Force: true})
	if err != nil {
		return err
	}
	for _, v := range versions {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/" + v.(map[string]any)["name"].(string), "kind": kind,
			"metadata": map[string]any{"name": "probe", "namespace": s.namespace},
		}}
		await.Until(t, waitLimit, "err == nil || !apierrors.IsNotFound(err)", func() bool {
			_, err := s.dryApply(t, "setup", u)
			return err == nil || !apierrors.IsNotFound(err)
		})
	}
	return nil
}

// replay is one run of a sequence.
type replay struct {
	*server
	name    string
	seq     sequence
	applied map[string]*applied

	ambiguous int
}

// applied is what a manager has applied.
type applied struct {
	objects []*unstructured.Unstructured // the last is what it wants
	digest  diff.Sum                     // after the last
	owned   bool
}

// run writes, and returns why it could not, if so.
func (r *replay) run(t *testing.T) string {
	t.Helper()
	for i, o := range r.seq.ops {
		u, err := r.object(o)
		if err != nil {
			return fmt.Sprintf("operation %d is no object: %v", i, err)
		}
		var answer *unstructured.Unstructured
		if o.kind == "Update" {
			answer, err = r.put(t, o.manager, u)
		} else {
			answer, err = r.tryApply(t.Context(), o.manager, u, metav1.ApplyOptions{Force: o.kind == "ForceApply"})
		}
		switch {
		case apierrors.IsConflict(err) && o.conflicts:
			continue
		case err != nil:
			return fmt.Sprintf("operation %d: the server refuses: %s", i, strings.Split(err.Error(), "\n")[0])
		case o.conflicts:
			return fmt.Sprintf("operation %d: the server sees no conflict", i)
		}
		if o.kind == "Update" {
			continue
		}
		a := r.applied[o.manager]
		if a == nil {
			a = &applied{}
			r.applied[o.manager] = a
		}
		a.objects = append(a.objects, u)
		a.digest, a.owned = diff.Digest(answer, o.manager)
	}
	return ""
}

func (r *replay) object(o op) (*unstructured.Unstructured, error) {
	content := map[string]any{}
	if err := unmarshal(o.object, &content); err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(replayGroup + "/" + o.version)
	u.SetKind(kindOf(r.seq.parser))
	u.SetName(r.name)
	u.SetNamespace(r.namespace)
	return u, nil
}

// put creates or replaces.
func (r *replay) put(t *testing.T, manager string, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	live, err := r.resource(u).Get(t.Context(), u.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return r.resource(u).Create(t.Context(), u, metav1.CreateOptions{FieldManager: manager})
	}
	if err != nil {
		return nil, err
	}
	u.SetResourceVersion(live.GetResourceVersion())
	return r.resource(u).Update(t.Context(), u, metav1.UpdateOptions{FieldManager: manager})
}

// judge compares our verdicts on a desired object with what the server would do.
func (r *replay) judge(t *testing.T, manager string, desired *unstructured.Unstructured, latest bool) error {
	t.Helper()
	live := r.get(t, desired)
	after, err := r.dryApply(t, manager, desired)
	if err != nil {
		return fmt.Errorf("dry run: %w", err)
	}
	fields, err := diff.Fields(desired.Object, live.Object, diff.Options{Manager: manager, Applied: latest})
	if err != nil {
		return err
	}
	shown := "\nfields " + strings.Join(
		show(fields),
		"\n       ",
	) + "\ndesired " + text(desired.Object) + "\nlive " + text(live.Object) + "\nafter " + text(after.Object)
	before, then := entryText(live, manager), entryText(after, manager)
	contentChanges := text(contentOf(live.Object)) != text(contentOf(after.Object))
	if latest {
		a := r.applied[manager]
		now, owned := diff.Digest(live, manager)
		touched := now != a.digest || owned != a.owned
		if changes := before != then || contentChanges; touched != changes && !onlyOrder(live, after, before, then) {
			return fmt.Errorf("digest changed: %v, an apply changes something: %v%s", touched, changes, shown)
		}
		if !touched && len(fields) > 0 && !contentChanges {
			return fmt.Errorf("nothing was touched, but there are fields%s", shown)
		}
	}
	if !covers(t, after, desired, manager) && then != "" {
		return fmt.Errorf("after an apply the owned set does not cover the desired object%s", shown)
	}
	if !diff.Tracked(live.Object) {
		return nil // an update has left nothing that anybody owns
	}
	settled, err := patched(live.Object, fields)
	if err != nil {
		return err
	}
	got, want := text(unordered(settled)), text(unordered(contentOf(after.Object)))
	if got != want && slices.ContainsFunc(withMapItems(fields), func(fields []diff.Field) bool {
		goes, err := patched(live.Object, fields)
		return err == nil && text(unordered(goes)) == want
	}) {
		r.ambiguous++
		return nil
	}
	if got != want {
		return fmt.Errorf("the fields do not lead to what an apply leaves:\n got %s\nwant %s%s", got, want, shown)
	}
	if before != then && len(fields) == 0 {
		return fmt.Errorf("ownership changes, but there are no fields%s", shown)
	}
	return nil
}

// withMapItems returns what the fields may be in the one case in which Fields
// cannot know, as its documentation says: an object that we own as an empty one,
// with something of others in it, goes with it if it is an item of a map.
func withMapItems(fields []diff.Field) [][]diff.Field {
	all := [][]diff.Field{slices.Clone(fields)}
	for i, f := range fields {
		if f.Difference != diff.Released || !strings.HasPrefix(string(f.Live), "{") {
			continue
		}
		for _, other := range slices.Clone(all) {
			other = slices.Clone(other)
			other[i].Difference = diff.Removed
			all = append(all, other)
		}
	}
	return all
}

// onlyOrder reports whether nothing changes but the order of lists, which no owned
// set tells, or an empty list that is merged by item, which has nothing to own.
func onlyOrder(live, after *unstructured.Unstructured, before, then string) bool {
	return before == then && text(unordered(contentOf(live.Object))) == text(unordered(contentOf(after.Object)))
}

func show(fields []diff.Field) []string {
	found := []string{}
	for _, f := range fields {
		found = append(found, string(f.Difference)+" "+f.String())
	}
	return found
}

// entryText returns the field set of a manager's applies, "" if it has none.
func entryText(u *unstructured.Unstructured, manager string) string {
	entry := diff.Entry(u.GetManagedFields(), manager)
	if entry == nil {
		return ""
	}
	var set map[string]any
	mustDecode(string(entry.FieldsV1.Raw), &set)
	data, _ := json.Marshal(set) //nolint:errchkjson // it was JSON
	return string(data)
}
