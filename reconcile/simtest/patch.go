package simtest

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// Media types of patches.
const (
	applyPatch     = "application/apply-patch+yaml"
	mergePatch     = "application/merge-patch+json"
	jsonPatch      = "application/json-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
)

func (s *Server) patch(c call) *answer {
	form, refusal := s.patchForm(c)
	if refusal != nil {
		return refusal
	}
	live := s.objects[c.key()]
	if form == applyPatch {
		return s.apply(c, live)
	}
	if live == nil {
		return notFound(c)
	}
	next, refusal := s.patched(c, form, c.kind.fromStored(live))
	if refusal != nil {
		return refusal
	}
	return s.replace(c, live, c.kind.toStored(next), nil)
}

// patchForm is the media type of a patch, or why it is not served.
func (s *Server) patchForm(c call) (string, *answer) {
	form := mergePatch
	if c.options != nil {
		form, _, _ = mime.ParseMediaType(c.options.Header.Get("Content-Type"))
	}
	known := []string{mergePatch, jsonPatch, applyPatch, strategicPatch}
	switch {
	case !slices.Contains(known, form), form == strategicPatch && c.kind.custom():
		return "", errorStatus(
			http.StatusUnsupportedMediaType,
			"UnsupportedMediaType",
			"the body of the request was in an unknown format",
			c,
		).about(nil)
	case form != mergePatch && s.Machinery == nil:
		return "", unserved(
			http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the server serves merge patches, not "+form,
			"set Machinery, as with reconcile/simtest/upstream, or patch with "+mergePatch, c,
		)
	case form == applyPatch && c.option("fieldManager") == "":
		return "", invalidOption(c, "PatchOptions", "fieldManager: Required value: is required for apply patch")
	case form != applyPatch && c.option("force") != "":
		return "", invalidOption(c, "PatchOptions", "force: Forbidden: may not be specified for non-apply patch")
	}
	return form, nil
}

// patched returns what a patch makes of an object.
func (s *Server) patched(c call, form string, live Object) (Object, *answer) {
	var next Object
	if form == mergePatch {
		patch, err := decode(c.body)
		if err != nil || patch == nil {
			return nil, badRequest(c, fmt.Sprintf("error decoding patch: %v", err))
		}
		next = merge(clone(live), patch)
	} else {
		if !json.Valid(c.body) {
			return nil, badRequest(c, "error decoding patch: invalid JSON")
		}
		var err error
		if next, err = s.Machinery.Patch(form, clone(live), c.body); err != nil {
			return nil, refused(c, err, http.StatusUnprocessableEntity)
		}
	}
	switch kind, version := next.text("kind"), next.text("apiVersion"); {
	case c.kind.custom() && (kind == "" || version == ""):
		return nil, misshaped(c, "Object 'Kind' is missing")
	case c.kind.custom() && version != live.text("apiVersion"):
		a := invalid(c, fmt.Sprintf("apiVersion: Invalid value: %q: must be %s", version, c.kind.apiVersion()))
		group, _, found := strings.Cut(version, "/")
		if !found {
			group = ""
		}
		a.body.Set(group, "details", "group")
		return nil, a
	case c.kind.custom() && kind != live.text("kind"):
		return nil, otherKind(c, kind)
	case kind != "" && kind != live.text("kind"), version != "" && version != live.text("apiVersion"):
		return nil, misshaped(c, fmt.Sprintf("%s in version %s cannot be handled as a %s", kind, version, c.kind.Kind))
	}
	if _, ok := next["metadata"].(map[string]any); !ok {
		next["metadata"] = map[string]any{}
	}
	if c.Subresource != "scale" {
		var refusal *answer
		if next, refusal = c.read(next, func(why string) *answer { return c.unpatchable(next, why) }); refusal != nil {
			return nil, refusal
		}
	}
	switch next.Name() {
	case c.Name:
	case "":
		return nil, nameless(c)
	default:
		return nil, otherName(c, next)
	}
	if next.Namespace() != "" && next.Namespace() != live.Namespace() && !c.kind.Cluster {
		return nil, badRequest(c, "the namespace of the provided object does not match the namespace sent on the request")
	}
	return next, nil
}

func (s *Server) apply(c call, live Object) *answer {
	config, err := s.config(c)
	switch {
	case live == nil && c.Subresource != "":
		return notFound(c)
	case err != nil:
		return badRequest(c, "error decoding YAML: "+err.Error())
	case config.text("kind") != c.kind.Kind || config.text("apiVersion") != c.kind.apiVersion():
		return badRequest(c, fmt.Sprintf("invalid object type: %v, Kind=%v", config["apiVersion"], config["kind"]))
	case config.UID() != "" && live == nil:
		return conflict(c, fmt.Sprintf("uid mismatch: the provided object specified uid %s, and no existing object was found", config.UID()))
	case config.list("metadata", "managedFields") != nil:
		return badRequest(c, "metadata.managedFields must be nil")
	}
	config = c.kind.toStored(config)
	result, err := s.Machinery.Apply(c.kind.read(live), config, c.write())
	if err != nil {
		return refused(c, err, http.StatusConflict)
	}
	if config.Name() != "" && config.Name() != c.Name {
		return otherName(c, config)
	}
	applied := result.list("metadata", "managedFields")
	if live == nil {
		result.Set(c.Name, "metadata", "name")
		return s.insert(c, result, applied)
	}
	result.keep(config, "metadata", "resourceVersion") // the precondition
	if result.ResourceVersion() == "" {
		result.keep(live, "metadata", "resourceVersion")
	}
	return s.replace(c, live, result, applied)
}

// config reads the body of an apply, which may be YAML.
func (s *Server) config(c call) (Object, error) {
	if json.Valid(c.body) {
		return decode(c.body)
	}
	return s.Machinery.Decode("application/yaml", c.body)
}
