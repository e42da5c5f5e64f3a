package simtest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	namePart  = regexp.MustCompile(`^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`)
)

// labelName returns why a name is none of a label or an annotation.
func labelName(name string) error {
	prefix, part, found := strings.Cut(name, "/")
	if !found {
		part = name
	} else if !subdomain.MatchString(prefix) || len(prefix) > 253 {
		return fmt.Errorf("%q: prefix part must be a lowercase RFC 1123 subdomain", name)
	}
	if !namePart.MatchString(part) || len(part) > 63 {
		return fmt.Errorf("%q: name part must consist of alphanumeric characters, '-', '_' or '.'", name)
	}
	return nil
}

func labelValue(value string) error {
	if value != "" && !namePart.MatchString(value) || len(value) > 63 {
		return fmt.Errorf("%q: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'", value)
	}
	return nil
}

// invalidMetadata returns what a real server would refuse in the metadata of any
// object, nil if there is nothing.
func (k Kind) invalidMetadata(o Object) error {
	if name := o.Name(); k.Group == "rbac.authorization.k8s.io" {
		if name == "." || name == ".." || strings.ContainsAny(name, "/%") {
			return fmt.Errorf("metadata.name: Invalid value: %q", name)
		}
	} else if !subdomain.MatchString(name) || len(name) > 253 {
		return fmt.Errorf("metadata.name: Invalid value: %q: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "+
			"'-' or '.', and must start and end with an alphanumeric character", name)
	}
	labels, _ := o.Field("metadata", "labels").(map[string]any)
	for name, value := range labels {
		text, _ := value.(string)
		if err := errors.Join(labelName(name), labelValue(text)); err != nil {
			return fmt.Errorf("metadata.labels: Invalid value: %w", err)
		}
	}
	annotations, _ := o.Field("metadata", "annotations").(map[string]any)
	for name := range annotations {
		if err := labelName(strings.ToLower(name)); err != nil {
			return fmt.Errorf("metadata.annotations: Invalid value: %w", err)
		}
	}
	for _, each := range o.list("metadata", "finalizers") {
		text, _ := each.(string)
		standard := k.lenient() || slices.Contains([]string{"orphan", "foregroundDeletion", "kubernetes"}, text)
		if err := labelName(text); err != nil || !standard && !strings.Contains(text, "/") {
			return fmt.Errorf("metadata.finalizers: Invalid value: %q: name is neither a standard finalizer name nor is it fully qualified", text)
		}
	}
	return invalidOwners(o)
}

// lenient reports whether a finalizer of the kind needs no domain.
func (k Kind) lenient() bool {
	groups := []string{"admissionregistration.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io", "node.k8s.io"}
	return k.custom() || slices.Contains(groups, k.Group)
}

func invalidOwners(o Object) error {
	controllers := 0
	for _, r := range o.owners() {
		for _, field := range []string{"apiVersion", "kind", "name", "uid"} {
			if r.text(field) == "" {
				return fmt.Errorf("metadata.ownerReferences.%s: Invalid value: \"\": must not be empty", field)
			}
		}
		if r.Field("controller") == true {
			controllers++
		}
	}
	if controllers > 1 {
		return errors.New("metadata.ownerReferences: Invalid value: Only one reference can have Controller set to true")
	}
	return nil
}
