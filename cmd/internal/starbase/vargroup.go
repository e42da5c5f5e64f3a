package starbase

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
)

// VarGroup is a named set of secret values of a project. Its entries must never be
// logged.
type VarGroup struct {
	// VarGroupID is a UUID.
	VarGroupID string `json:"var_group_id"`
	// ProjectID is a UUID.
	ProjectID string `json:"project_id"`
	// Environment is the one that the group may be attached in. Empty: any.
	Environment string `json:"environment"`
	// Entries are the values by name.
	Entries map[string]string `json:"entries"`
	// Checksum is that of the entries; see [VarGroupChecksum].
	Checksum string `json:"checksum"`
}

// Fits reports whether a service may have the group.
func (g *VarGroup) Fits(service Identity) bool {
	return g.ProjectID == service.ProjectID && (g.Environment == "" || g.Environment == service.Environment)
}

// Validate returns what is wrong with the group, with the path of each field and what
// would be right. Values of entries are never among what it returns.
func (g *VarGroup) Validate() []FieldError {
	var v violations
	v.match("var_group_id", g.VarGroupID, uuidPattern, wantUUID)
	v.match("project_id", g.ProjectID, uuidPattern, wantUUID)
	if g.Environment != "" {
		v.environmentName(g.Environment)
	}
	v.variables("entries", g.Entries)
	if checksum := VarGroupChecksum(g.Entries); len(v) == 0 && g.Checksum != checksum {
		v.add("checksum", g.Checksum, checksum)
	}
	return v
}

// ValidVarGroupName reports whether people may call a group so.
func ValidVarGroupName(name string) bool { return varGroupNamePattern.MatchString(name) }

// VarGroupChecksum returns "sha256:<hex>" over the entries of groups: the canonical JSON
// of each, one after the other.
func VarGroupChecksum(groups ...map[string]string) string {
	hash := sha256.New()
	for _, entries := range groups {
		var canonical bytes.Buffer
		encoder := json.NewEncoder(&canonical) // sorts the keys of maps
		encoder.SetEscapeHTML(false)
		if entries == nil {
			entries = map[string]string{}
		}
		_ = encoder.Encode(entries) // strings always encode
		hash.Write(bytes.TrimSuffix(canonical.Bytes(), []byte("\n")))
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil))
}

// Attached returns the groups that are attached, in the order in which they are rendered.
func (s *Service) Attached() []ServiceVarGroup {
	return slices.SortedFunc(slices.Values(s.VarGroups), func(a, b ServiceVarGroup) int { return cmp.Compare(a.AttachOrder, b.AttachOrder) })
}

// Format implements [fmt.Formatter]: no verb shows entries.
func (g VarGroup) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("var group " + g.VarGroupID)) }

// LogValue implements [slog.LogValuer]: no log shows entries.
func (g VarGroup) LogValue() slog.Value { return slog.StringValue("var group " + g.VarGroupID) }
