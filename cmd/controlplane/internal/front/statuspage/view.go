package statuspage

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

const (
	// pageSize is how many clusters or regions are shown at once.
	pageSize = 50
	maxPage  = 1_000_000
)

// searchPattern is what can be searched for.
var searchPattern = regexp.MustCompile(`^[^\x00-\x1f\x7f]{0,100}$`)

// view is what a viewer looks at of the lists.
type view struct {
	// query is what a row has to contain, as it was asked for. Empty: every row is shown.
	query string
	// clusters, regions and services are the pages, from 1.
	clusters, regions, services int
}

// viewOf returns the view that the URL of a request asks for.
func viewOf(r *http.Request) (view, error) {
	q := adminapi.NewQuery(r)
	v := view{
		query:    strings.TrimSpace(q.Text("q", searchPattern, "at most 100 characters without control characters")),
		clusters: q.Int("clusters", 1, 1, maxPage),
		regions:  q.Int("regions", 1, 1, maxPage),
		services: q.Int("services", 1, 1, maxPage),
	}
	return v, q.Err()
}

// url returns the address of the page with that view.
func (v view) url(section string) string {
	values := url.Values{}
	if v.query != "" {
		values.Set("q", v.query)
	}
	for name, page := range map[string]int{"clusters": v.clusters, "regions": v.regions, "services": v.services} {
		if page > 1 {
			values.Set(name, strconv.Itoa(page))
		}
	}
	address := Path
	if section == "services" {
		address = servicesPath
	}
	if len(values) > 0 {
		address += "?" + values.Encode()
	}
	return address + "#" + section
}

// listing is the page of a list that is shown.
type listing struct {
	// Section is clusters, regions or services.
	Section string `json:"-"`
	Rows    any    `json:"-"`
	// Query is the search text. Empty: no search.
	Query string `json:"q"`
	// Total counts all rows, Found those that match.
	Total int `json:"total"`
	Found int `json:"found"`
	// Page is the number of the page that is shown, of Pages, and First and Last are the
	// places of its rows, from 1.
	Page  int `json:"page"`
	Pages int `json:"pages"`
	First int `json:"first"`
	Last  int `json:"last"`
	// Previous and Next are the addresses of the pages beside it. Empty: there is none.
	Previous string `json:"previous,omitempty"`
	Next     string `json:"next,omitempty"`
}

// sought is a row that can be searched for.
type sought interface {
	// contains reports whether the row has the text, which is in lower case.
	contains(text string) bool
}

// list returns the page of the rows that the view shows. A page beyond the last is the last.
func list[R sought](rows []R, section string, v view) (shown []R, l listing) {
	found := rows
	if v.query != "" {
		text := strings.ToLower(v.query)
		found = slices.DeleteFunc(slices.Clone(rows), func(r R) bool { return !r.contains(text) })
	}
	l = listing{Section: section, Query: clean(v.query), Total: len(rows), Found: len(found), Pages: max(1, (len(found)+pageSize-1)/pageSize)}
	asked := map[string]*int{"clusters": &v.clusters, "regions": &v.regions, "services": &v.services}[section]
	l.Page = min(max(1, *asked), l.Pages)
	first := (l.Page - 1) * pageSize
	shown = found[first:min(len(found), first+pageSize)]
	if len(shown) > 0 {
		l.First, l.Last = first+1, first+len(shown)
	}
	if l.Page > 1 {
		*asked = l.Page - 1
		l.Previous = v.url(section)
	}
	if l.Page < l.Pages {
		*asked = l.Page + 1
		l.Next = v.url(section)
	}
	l.Rows = shown
	return shown, l
}

// narrow returns what the view shows of each section, by name.
func narrow(sections []section, v view) map[string]any {
	models := map[string]any{}
	for _, s := range sections {
		models[s.name] = s.model
	}
	clusters, _ := models["clusters"].([]clusterRow)
	shown, clusterList := list(clusters, "clusters", v)
	models["clusters"] = clusterList
	if regions, ok := models["regions"].([]regionRow); ok {
		_, models["regions"] = list(regions, "regions", v)
	}
	place := make(map[string]int, len(shown))
	for n := range shown {
		place[shown[n].ID] = n
	}
	if all, ok := models["capacity"].([]load); ok {
		some := clusterList
		some.Rows = pick(all, place, func(l *load) string { return l.ID })
		models["capacity"] = some
	}
	if all, ok := models["changes"].([]change); ok {
		models["changes"] = soughtChanges(all, v)
	}
	return models
}

// pick returns the items that have a place, in the order of their places.
func pick[T any](all []T, place map[string]int, id func(*T) string) []T {
	some := make([]T, 0, len(place))
	for n := range all {
		if _, ok := place[id(&all[n])]; ok {
			some = append(some, all[n])
		}
	}
	slices.SortFunc(some, func(a, b T) int { return cmp.Compare(place[id(&a)], place[id(&b)]) })
	return some
}

// worst orders states: what needs a look comes first.
func worst(a, b state) int { return cmp.Compare(rank(a.Kind), rank(b.Kind)) }

// any of the texts contains the text, which is in lower case.
func anyContains(text string, in ...string) bool {
	return slices.ContainsFunc(in, func(s string) bool { return strings.Contains(strings.ToLower(s), text) })
}

func (row clusterRow) contains(text string) bool {
	if anyContains(text, row.ID, row.Region, row.State.Word) {
		return true
	}
	return slices.ContainsFunc(row.Notes, func(n note) bool { return anyContains(text, n.Identity, n.IDs, n.Class, n.Word) })
}

func (row regionRow) contains(text string) bool {
	if anyContains(text, row.ID, row.Name, row.Platform, row.Cell, row.State.Word) {
		return true
	}
	return slices.ContainsFunc(row.Failed, func(f failedInstance) bool { return anyContains(text, f.Name) }) ||
		slices.ContainsFunc(row.Unhealthy, func(u unhealthySentinel) bool { return anyContains(text, u.Name) })
}
