package remote

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// kind is one kind of object that the API has.
type kind struct {
	// name and plural are what a person types.
	name, plural string
	// path is the path of one object, with a %s for each word that names it. Empty: there is
	// only a list.
	path string
	// words are what names an object, such as PROJECT_ID SERVICE_ID ENVIRONMENT. The list
	// takes the words of the object that has the items.
	words []string
	// list is the path of the list, and member the member of its answer. Empty: there is no
	// list.
	list, member string
	// columns are the columns of the table, each a title and the path of a member.
	columns [][2]string
	// key are the members that name an item of the list.
	key []string
	// printed are the members that get shows beside those that put takes: put leaves them out.
	printed []string
	// times is true if the table has times as they are, and not their ages.
	times bool
}

// kinds are all of them.
func kinds() []kind {
	const (
		cluster  = "clusters/%s"
		project  = "projects/%s"
		service  = project + "/services/%s/%s"
		varGroup = project + "/var-groups/%s"
		region   = "regions/%s"
	)
	all := []kind{
		{
			name: "cluster", plural: "clusters", path: cluster, words: []string{"CLUSTER_ID"}, list: "clusters", member: "clusters",
			key: []string{"cluster_id"},
			printed: []string{
				"approved_deletions", "cluster_id", "created_at", "epoch", "generation", "held_deletions", "last_pull_at", "last_pull_version",
				"last_report_at", "lb_size_units", "previous_token_until", "reported_epoch", "reported_error_class", "reported_generation",
				"reported_message", "services", "standings", "token_until",
			},
			columns: [][2]string{
				{"ID", "cluster_id"},
				{"REGION", "region"},
				{"GENERATION", "generation"},
				{"REPORTED", "reported_generation"},
				{"LAST-REPORT", "last_report_at"},
				{"HELD", "held_deletions.count"},
				{"ERROR", "reported_error_class"},
			},
		},
		{
			name: "project", plural: "projects", path: project, words: []string{"PROJECT_ID"}, list: "projects", member: "projects",
			key:     []string{"project_id"},
			printed: []string{"deleted", "namespace"},
			columns: [][2]string{
				{"ID", "project_id"},
				{"WORKSPACE", "workspace_slug"},
				{"SLUG", "slug"},
				{"NAMESPACE", "namespace"},
				{"CLUSTER", "cluster_id"},
				{"DELETED", "deleted"},
			},
		},
		{
			name: "service", plural: "services", path: service, words: []string{"PROJECT_ID", "SERVICE_ID", "ENVIRONMENT"},
			list: project + "/services", member: "services", key: []string{"service_id", "environment"},
			columns: [][2]string{
				{"ID", "service_id"},
				{"ENVIRONMENT", "environment"},
				{"NAME", "service_name"},
				{"IMAGE", "image"},
				{"REPLICAS", "replicas"},
				{"DELETED", "deleted"},
			},
		},
		{
			name: "var-group", plural: "var-groups", path: varGroup, words: []string{"PROJECT_ID", "VAR_GROUP_ID"},
			list: project + "/var-groups", member: "var_groups", key: []string{"var_group_id"},
			printed: []string{"checksum", "project_id", "services", "var_group_id"},
			columns: [][2]string{{"ID", "var_group_id"}, {"NAME", "name"}, {"ENVIRONMENT", "environment"}},
		},
		{
			name: "attached-var-groups", path: service + "/var-groups", words: []string{"PROJECT_ID", "SERVICE_ID", "ENVIRONMENT"},
		},
		{name: "config", path: cluster + "/config", words: []string{"CLUSTER_ID"}},
		{
			name: "region", plural: "regions", path: region, words: []string{"REGION_ID"}, list: "regions", member: "regions",
			key: []string{"region_id"},
			printed: []string{
				"approved_deletions", "cell_id", "heartbeat_at", "held_deletions", "log_epoch", "log_head", "previous_token_until", "problems",
				"region_id", "resources", "silent", "token_until",
			},
			columns: [][2]string{
				{"ID", "region_id"},
				{"NAME", "name"},
				{"PLATFORM", "platform"},
				{"CELL", "cell_id"},
				{"HEARTBEAT", "heartbeat_at"},
				{"SILENT", "silent"},
				{"HELD", "held_deletions.count"},
			},
		},
		{name: "log", path: "log"},
		{
			name: "token", plural: "tokens", list: "tokens", member: "tokens", key: []string{"fingerprint"},
			columns: [][2]string{
				{"FINGERPRINT", "fingerprint"},
				{"ACTOR", "actor"},
				{"ROLE", "role"},
				{"PROJECTS", "projects"},
				{"REGIONS", "regions"},
				{"EXPIRES", "expires_at"},
				{"EXPIRED", "expired"},
				{"LAST-USED", "last_used_at"},
			},
		},
		{
			plural: "audit", list: "audit", member: "entries", key: []string{"id"},
			columns: [][2]string{
				{"AT", "at"}, {"ACTOR", "actor"}, {"VERB", "verb"}, {"KIND", "kind"}, {"NAME", "name"}, {"OUTCOME", "outcome"}, {"FROM", "from"},
			},
		},
		{
			plural: "usage", list: "usage", member: "usage",
			key: []string{"day", "cluster_id", "workspace_id", "project_id", "environment", "service_id", "phase"},
			columns: [][2]string{
				{"DAY", "day"},
				{"CLUSTER", "cluster_id"},
				{"WORKSPACE", "workspace_id"},
				{"PROJECT", "project_id"},
				{"ENVIRONMENT", "environment"},
				{"SERVICE", "service_id"},
				{"PHASE", "phase"},
				{"POD-MINUTES", "pod_minutes"},
				{"CPU-MILLI-MINUTES", "cpu_milli_minutes"},
				{"MEMORY-BYTE-MINUTES", "memory_byte_minutes"},
				{"FINAL", "final"},
			},
		},
		{
			plural: "usage-gaps", list: "usage/gaps", member: "gaps", key: []string{"cluster_id", "from"}, times: true,
			columns: [][2]string{{"CLUSTER", "cluster_id"}, {"REASON", "reason"}, {"FROM", "from"}, {"TO", "to"}, {"MINUTES", "minutes"}},
		},
	}
	for _, name := range [][2]string{{"deployment", "deployments"}, {"sentinel", "sentinels"}, {"policy", "policies"}} {
		all = append(all, kind{
			name: name[0], plural: name[1], path: region + "/" + name[1] + "/%s", words: []string{"REGION_ID", "ID"},
			list: region + "/" + name[1], member: name[1], key: []string{"id"},
			columns: [][2]string{
				{"ID", "id"}, {"NAMESPACE", "k8s_namespace"}, {"NAME", "k8s_name"}, {"STATE", "desired_state"}, {"HEALTH", "health"},
			},
		})
	}
	return all
}

// find returns the kind that a person has named, of those that the command takes.
func find(name string, has func(kind) bool) (kind, error) {
	names := names(has)
	for _, k := range kinds() {
		if has(k) && name != "" && (name == k.name || name == k.plural) {
			return k, nil
		}
	}
	if name == "" {
		return kind{}, program.Usagef("KIND: is not set, must be one of %s", strings.Join(names, ", "))
	}
	return kind{}, program.Usagef("KIND: is %q, must be one of %s", program.Shown(name), strings.Join(names, ", "))
}

// names returns the names of the kinds that a command takes.
func names(has func(kind) bool) (names []string) {
	for _, k := range kinds() {
		if has(k) {
			names = append(names, cmp.Or(k.name, k.plural))
		}
	}
	slices.Sort(names)
	return names
}

// object returns the path of the object that the words name.
func (k kind) object(words []string) (string, error) { return fill(k.path, k.words, words) }

// collection returns the path of the list in what the words name.
func (k kind) collection(words []string) (string, error) {
	return fill(k.list, k.words[:strings.Count(k.list, "%s")], words)
}

func fill(path string, names, words []string) (string, error) {
	if len(words) < len(names) {
		return "", program.Usagef("%s: is not set; the names are %s", names[len(words)], strings.Join(names, " "))
	}
	if len(words) > len(names) {
		want := cmp.Or(strings.Join(names, " "), "none")
		return "", program.Usagef("%s: is one name too many, must be %s", program.Shown(words[len(names)]), want)
	}
	values := make([]any, 0, len(words))
	for i, word := range words {
		if word == "" || word == "." || word == ".." {
			return "", program.Usagef("%s: is %q, must be a name", names[i], word)
		}
		values = append(values, url.PathEscape(word))
	}
	return fmt.Sprintf(path, values...), nil
}
