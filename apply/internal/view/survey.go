package view

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientmetadata "k8s.io/client-go/metadata"
)

// Survey calls take for each object of a kind in a namespace, "" for all, that a label
// selector selects. A list that the server refuses as not found proves nothing by itself: the
// kind may be served in another version by now, which is then listed. Without an error there
// are no other objects. [Bounded] bounds each request.
func Survey(
	ctx context.Context,
	client clientmetadata.Interface,
	discovery Discovery,
	resource schema.GroupVersionResource,
	kind, namespace, selector string,
	take func(*metav1.PartialObjectMetadata) error,
) error {
	options := metav1.ListOptions{Limit: 500, LabelSelector: selector}
	for moved := false; ; {
		list, err := Bounded(ctx, func(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
			return client.Resource(resource).Namespace(namespace).List(ctx, options)
		})
		if apierrors.IsNotFound(err) {
			known, now := Ask(ctx, client, discovery, schema.GroupKind{Group: resource.Group, Kind: kind})
			next := schema.GroupVersionResource{Group: now.Group, Version: now.Version, Resource: now.Name}
			switch {
			case known.State != Served:
				return known.Doubt()
			case moved:
				return fmt.Errorf("is served, but: %w", err)
			}
			resource, moved, options.Continue = next, true, ""
			continue
		}
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := take(&list.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// answerTime bounds the wait for one answer.
const answerTime = 30 * time.Second

var errNoAnswer = errors.New("the server does not answer")

// Bounded sends a read that a pass can do without: what the read is about stays as it is, and the rest of the pass goes
// on. The read may take 30 s, with the retries of the client, and at most a quarter of the time that ctx leaves: many reads
// that the server does not answer leave time for the rest, too.
func Bounded[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	limit := answerTime
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/4)
	}
	within, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	answer, err := read(within)
	if err != nil && context.Cause(within) == errNoAnswer { //nolint:errorlint // the cause itself
		err = fmt.Errorf("%w within %v: %w", errNoAnswer, limit.Round(time.Millisecond), err)
	}
	return answer, err
}

// Watchable yields the kinds whose objects can be listed and watched. The server computes
// the objects of other kinds, such as metrics.k8s.io.
func Watchable(lists []*metav1.APIResourceList) iter.Seq2[schema.GroupVersionResource, *metav1.APIResource] {
	return func(yield func(schema.GroupVersionResource, *metav1.APIResource) bool) {
		for _, list := range lists {
			version, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				continue // the server could serve no such path
			}
			for i := range list.APIResources {
				kind := &list.APIResources[i]
				if strings.Contains(kind.Name, "/") || !slices.Contains(kind.Verbs, "list") || !slices.Contains(kind.Verbs, "watch") {
					continue
				}
				if !yield(version.WithResource(kind.Name), kind) {
					return
				}
			}
		}
	}
}
