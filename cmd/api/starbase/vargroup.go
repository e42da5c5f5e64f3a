package starbase

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
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
	// Checksum is another one when an entry changes, and says nothing else about them: it is
	// made with a key that only the server has.
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
	v.match("checksum", g.Checksum, checksumPattern, "hmac-sha256: and 64 hexadecimal digits")
	return v
}

// ValidVarGroupName reports whether people may call a group so.
func ValidVarGroupName(name string) bool { return varGroupNamePattern.MatchString(name) }

// checksumPattern takes sha256: as well, of a server that has no key.
var checksumPattern = regexp.MustCompile(`^(hmac-)?sha256:[0-9a-f]{64}$`)

// Canonical returns the entries as JSON, the same text for the same entries. It must never
// be logged.
func (g *VarGroup) Canonical() string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text) // sorts the keys of maps
	encoder.SetEscapeHTML(false)
	entries := g.Entries
	if entries == nil {
		entries = map[string]string{}
	}
	_ = encoder.Encode(entries) // strings always encode
	return strings.TrimSuffix(text.String(), "\n")
}

// VarGroupChecksum returns "sha256:<hex>" over the checksums of groups, each with a newline
// after it.
func VarGroupChecksum(groups ...*VarGroup) string {
	hash := sha256.New()
	for _, g := range groups {
		_, _ = hash.Write([]byte(g.Checksum + "\n")) // never fails
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
