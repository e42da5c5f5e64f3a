package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/folder"
)

const (
	manager = "trueup"
	domain  = "trueup.dev"

	labelSet          = domain + "/set"
	labelSetNamespace = domain + "/set-namespace"
	labelPart         = domain + "/part"

	annotationPolicy  = domain + "/policy"  // of an object: create-only or leave-out
	annotationCluster = domain + "/cluster" // of the set's ConfigMap: the UID of the cluster
)

// session is one part of a set on a cluster.
type session struct {
	cluster *cluster
	options *options
	parent  *unstructured.Unstructured // the set's ConfigMap as it is to be
	owner   apply.Owner
	set     *apply.Set
	self    *apply.Set                                   // of the set's ConfigMap alone
	kinds   map[schema.GroupKind]schema.GroupVersionKind // of the objects of the files
	where   map[string]string                            // the file and line of each object
	// policies are those of the objects that are not treated as stated.
	policies map[apply.ID]apply.ObjectPolicy
	// faults are those of the files: the set lacks something, so nothing counts as absent.
	faults   []error
	applier  *apply.Applier
	guard    *apply.Guard
	outcomes outcomes
	// events has an element when something has happened that a pass may wait for.
	events chan struct{}
	stop   func()
}

// open reads the files, connects, and begins to watch the objects of the set. Close it.
func (o *options) open(c *cobra.Command, supersedes ...string) (*session, error) {
	objects, faults := folder.Read(o.files, c.InOrStdin())
	if len(objects) == 0 && len(o.files) > 0 {
		return nil, o.ended(o.none(faults), nil, 0)
	}
	connected, err := o.connect(c.Context(), c.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	s := &session{cluster: connected, options: o, outcomes: outcomes{Results: []outcome{}}, events: make(chan struct{}, 1)}
	if s.parent, err = s.checkParent(c.Context()); err != nil {
		return nil, failed(err)
	}
	s.owner = apply.Owner{
		Manager: manager, Domain: domain, PartLabel: labelPart, Supersedes: supersedes, ApplySet: s.cluster.parent(o.set),
		Labels: map[string]string{labelSet: o.set, labelSetNamespace: s.cluster.namespace},
	}
	if s.self, err = apply.NewSet(s.owner, []*unstructured.Unstructured{s.parent}, apply.SetOptions{Part: o.part}); err != nil {
		return nil, failed(err)
	}
	if err := s.desired(objects, faults); err != nil {
		return nil, failed(err)
	}
	live := &apply.Live{
		Client: s.cluster.metadata, Mapper: s.cluster.mapper, Discovery: s.cluster.known, Owner: s.owner, ReapplyInterval: -1,
		OnDrift: func(apply.Observed) { s.wake() }, OnSynced: func(schema.GroupKind) { s.wake() }, OnChange: func(apply.Observed) { s.wake() },
	}
	s.applier = &apply.Applier{Live: live, Objects: s.cluster.objects}
	if err := s.write(o.writing); err != nil {
		return nil, failed(err)
	}
	s.guard = &apply.Guard{Memory: &apply.ConfigMapMemory{
		Client: s.cluster.objects, Namespace: s.cluster.namespace, Name: "trueup-" + o.set + "-deletions",
	}}
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan error, 1)
	go func() { ended <- live.Start(ctx) }()
	s.stop = func() { cancel(); o.out.Error(<-ended) }
	if err := s.seen(c.Context()); err != nil {
		s.stop()
		return nil, failed(err)
	}
	return s, nil
}

// seen waits until every object of the set can be seen, those of the kinds that its
// ConfigMap names, too.
func (s *session) seen(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, s.options.timeout)
	defer cancel()
	for {
		_, err := s.applier.Plan(within, s.self, apply.PruneOptions{}) // reads the ConfigMap
		if !errors.Is(err, apply.ErrNotSynced) {
			err = s.applier.Live.Unseen()
		}
		switch {
		case apierrors.IsForbidden(err):
			return unreadable(err)
		case err == nil || !s.pause(within):
			return err
		}
	}
}

func unreadable(err error) error {
	return fmt.Errorf("right is missing: a set needs get, list and watch of its kinds in the whole cluster: %w", err)
}

// none returns why the files have no object.
func (o *options) none(faults []error) []error {
	if len(faults) > 0 {
		return faults
	}
	return []error{fmt.Errorf("%s: has no object", strings.Join(o.files, ", "))}
}

func (s *session) wake() {
	select {
	case s.events <- struct{}{}:
	default:
	}
}

// checkParent returns the ConfigMap that the set's is to become. It refuses one that was made
// in another cluster.
func (s *session) checkParent(ctx context.Context) (*unstructured.Unstructured, error) {
	uid, err := s.cluster.uid(ctx)
	if err != nil {
		return nil, err
	}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if here, err := s.cluster.one(ctx, namespaces, "", s.cluster.namespace); err == nil && here == nil {
		return nil, program.Usagef("--namespace: is %q, must be a namespace that exists: the set's ConfigMap is in it", s.cluster.namespace)
	}
	id := s.cluster.parent(s.options.set)
	found, err := s.cluster.one(ctx, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, id.Namespace, id.Name)
	if err != nil {
		return nil, err
	}
	if found != nil {
		if of := found.Annotations[annotationCluster]; uid != "" && of != "" && of != uid {
			return nil, program.Usagef("%s was made in another cluster (its UID is %s, that of %s is %s): it is a copy; "+
				"check --context, then delete the ConfigMap if its objects are to be taken", id, of, s.cluster.host, uid)
		}
	}
	parent := &unstructured.Unstructured{Object: map[string]any{}}
	parent.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: id.Kind})
	parent.SetNamespace(id.Namespace)
	parent.SetName(id.Name)
	if uid != "" {
		parent.SetAnnotations(map[string]string{annotationCluster: uid})
	}
	return parent, nil
}

// read reads the files again. Files without an object leave the set as it is, with a fault.
func (s *session) read(stdin io.Reader) error {
	if slices.Contains(s.options.files, folder.Stdin) {
		return nil
	}
	objects, faults := folder.Read(s.options.files, stdin)
	if len(objects) == 0 {
		s.faults = s.options.none(faults)
		return nil
	}
	return s.desired(objects, faults)
}

// desired makes the set. Objects that cannot be in it are faults, beside those of the files.
func (s *session) desired(objects []folder.Object, faults []error) error {
	s.faults = faults
	defined := definitions(objects)
	stated := []*unstructured.Unstructured{s.parent}
	where, policies := map[string]string{}, map[apply.ID]apply.ObjectPolicy{}
	s.kinds = map[schema.GroupKind]schema.GroupVersionKind{}
	for _, object := range objects {
		namespaced, err := s.namespaced(object, defined)
		switch namespace := object.GetNamespace(); {
		case meta.IsNoMatchError(err):
			err = fmt.Errorf("kind %s of %s: is not served by the cluster, and no file defines it", object.GetKind(), object.GetAPIVersion())
		case err != nil:
			return err
		case namespaced && namespace == "":
			object.SetNamespace(s.cluster.namespace)
		case namespaced && s.options.namespace != "" && namespace != s.cluster.namespace:
			err = fmt.Errorf("%s %s: metadata.namespace: is %q, must be that of --namespace, %q, or missing",
				object.GetKind(), object.GetName(), namespace, s.cluster.namespace)
		case !namespaced && namespace != "":
			err = fmt.Errorf("%s %s: metadata.namespace: is %q, must be missing: the kind has none", object.GetKind(), object.GetName(), namespace)
		}
		policy, unknown := policyOf(object.Unstructured)
		if err == nil {
			err = unknown
		}
		if err != nil {
			s.faults = append(s.faults, fmt.Errorf("%s: %w", object.At, err))
			continue
		}
		where[idOf(object.Unstructured).String()], policies[idOf(object.Unstructured)] = object.At, policy
		s.kinds[object.GroupVersionKind().GroupKind()] = object.GroupVersionKind()
		stated = append(stated, object.Unstructured)
	}
	set, err := apply.NewSet(s.owner, stated, apply.SetOptions{
		Part: s.options.part, Gate: true, Policy: func(id apply.ID) apply.ObjectPolicy { return policies[id] },
	})
	if set == nil {
		return err
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			id, _, _ := strings.Cut(err.Error(), ":")
			if at := where[id]; at != "" {
				err = fmt.Errorf("%s: %w", at, err)
			}
			s.faults = append(s.faults, err)
		}
	} else if err != nil {
		s.faults = append(s.faults, err)
	}
	s.set, s.policies, s.where = set, policies, where
	return nil
}

func idOf(object *unstructured.Unstructured) apply.ID {
	kind := object.GroupVersionKind()
	return apply.ID{Group: kind.Group, Kind: kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// definitions returns the kinds that the objects define, and whether these have namespaces.
func definitions(objects []folder.Object) map[schema.GroupKind]bool {
	found := map[schema.GroupKind]bool{}
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope")
		found[schema.GroupKind{Group: group, Kind: kind}] = scope == "Namespaced"
	}
	return found
}

// namespaced reports whether the objects of a kind have a namespace.
func (s *session) namespaced(object folder.Object, defined map[schema.GroupKind]bool) (bool, error) {
	kind := object.GroupVersionKind()
	if namespaced, ok := defined[kind.GroupKind()]; ok {
		return namespaced, nil
	}
	mapping, err := s.cluster.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return false, err
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// reviewed are the options of a plan: a person reads it before it is carried out, so no
// limit holds its deletions.
func (s *session) reviewed() apply.PruneOptions {
	return apply.PruneOptions{Complete: len(s.faults) == 0, Guard: &apply.Guard{Absent: apply.Limit{Count: 1 << 30}}}
}

// pruning are the options under which a session prunes: only with files that were read
// whole, and within what the guard allows.
func (s *session) pruning(f pruneFlags, approved string) apply.PruneOptions {
	s.guard.Absent = apply.Limit{Count: f.limit}
	if f.limit == 0 {
		s.guard.Absent.Count = -1 // the zero Limit is the default
	}
	return apply.PruneOptions{
		Complete: len(s.faults) == 0, Guard: s.guard, Approved: approved,
		Orphan: f.removal.orphan(), Propagation: cascades[f.removal.cascade],
	}
}

// pause waits for an event, at most a second. It reports whether there is time left.
func (s *session) pause(ctx context.Context) bool {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-s.events:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
