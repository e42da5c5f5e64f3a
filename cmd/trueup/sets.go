package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// Of KEP-3659, which other tools follow, too.
const (
	applySetID      = "applyset.kubernetes.io/id"
	applySetPartOf  = "applyset.kubernetes.io/part-of"
	applySetKinds   = "applyset.kubernetes.io/contains-group-kinds"
	applySetTooling = "applyset.kubernetes.io/tooling"
)

// setPart is a part of a set in a cluster.
type setPart struct {
	Set     apply.ID `json:"set"`
	Tool    string   `json:"tool"`
	Part    string   `json:"part,omitempty"`
	Objects int      `json:"objects"`
	// Touched counts the objects that another program has written since the set did, except
	// for their status.
	Touched int `json:"touched"`
	// Unseen are kinds whose objects could not be counted.
	Unseen []string `json:"unseen,omitempty"`
}

func (o *options) setsCommand() *cobra.Command {
	var everywhere bool
	c := &cobra.Command{
		Use: "sets", Short: "List the sets, with their parts, objects and what others have touched", Args: program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			at, err := o.connect(c.Context(), c.ErrOrStderr())
			if err != nil {
				return err
			}
			namespace := at.namespace
			if everywhere {
				namespace = ""
			}
			parts, err := at.sets(c.Context(), namespace)
			if err != nil {
				return failed(err)
			}
			var rows [][]string
			var ids []string
			for _, p := range parts {
				ids = append(ids, p.Set.String())
				rows = append(rows, []string{
					p.Set.Namespace, p.Set.Name, p.Tool, p.Part, fmt.Sprint(p.Objects), fmt.Sprint(p.Touched), strings.Join(p.Unseen, ","),
				})
			}
			if !o.out.Value(parts, slices.Compact(ids)) {
				o.out.Table([]string{"NAMESPACE", "SET", "TOOL", "PART", "OBJECTS", "TOUCHED", "UNSEEN"}, rows)
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "of all namespaces")
	return c
}

// sets returns the ApplySets of a namespace, "" for all, by name and part.
func (c *cluster) sets(ctx context.Context, namespace string) ([]setPart, error) {
	parents, err := c.metadata.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).
		Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: applySetID})
	if err != nil {
		return nil, err
	}
	all := []setPart{}
	for _, parent := range parents.Items {
		id := apply.ID{Kind: "ConfigMap", Namespace: parent.Namespace, Name: parent.Name}
		parts := map[string]*setPart{}
		var unseen []string
		for text := range strings.SplitSeq(parent.Annotations[applySetKinds], ",") {
			members, err := c.members(ctx, schema.ParseGroupKind(text), parent.Labels[applySetID])
			if err != nil {
				unseen = append(unseen, text)
			}
			for i := range members {
				name := members[i].Labels[labelPart]
				if parts[name] == nil {
					parts[name] = &setPart{Set: id, Tool: parent.Annotations[applySetTooling], Part: name}
				}
				parts[name].Objects++
				if touched(&members[i]) {
					parts[name].Touched++
				}
			}
		}
		if len(parts) == 0 {
			parts[""] = &setPart{Set: id, Tool: parent.Annotations[applySetTooling]}
		}
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			parts[name].Unseen = unseen
			all = append(all, *parts[name])
		}
	}
	return all, nil
}

// members returns the objects of a kind that are in an ApplySet.
func (c *cluster) members(ctx context.Context, kind schema.GroupKind, set string) ([]metav1.PartialObjectMetadata, error) {
	mapping, err := c.mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return nil, nil // the kind is gone, and so are its objects
	}
	if err != nil {
		return nil, err
	}
	list, err := c.metadata.Resource(mapping.Resource).List(ctx, metav1.ListOptions{LabelSelector: applySetPartOf + "=" + set})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// touched reports whether another manager has written the object, beside its status, after
// the set's last apply.
func touched(object *metav1.PartialObjectMetadata) bool {
	var applied, others time.Time
	for _, entry := range object.ManagedFields {
		switch {
		case entry.Time == nil || entry.Subresource == "status":
		case entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply:
			applied = entry.Time.Time
		case entry.Time.After(others):
			others = entry.Time.Time
		}
	}
	return others.After(applied)
}
