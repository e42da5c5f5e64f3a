package statuspage

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
)

// placesPerPage is how many clusters or regions a page of their list has.
const placesPerPage = 100

// placeRow is a cluster or region in the list of all.
type placeRow struct {
	// Path is where its own page is.
	Path string
	// Name is what people call it: the region where a cluster runs, or the name of a region.
	Name, ID string
	// Problems are what is wrong with it, the worst first, and State the worst of them, which is
	// so since Since; zero: the database does not know it.
	Problems []problem
	State    state
	Since    time.Time
	// Heard is when its agent was heard last; zero: never.
	Heard time.Time
	// Detail is how full a cluster is, or where a region runs. Empty: unknown.
	Detail string
}

func newPlaceRow(list, name, id string, problems []problem, well state) placeRow {
	worst := worstOf(problems, well)
	return placeRow{
		Path: Path + "/" + list + "/" + url.PathEscape(id), Name: clean(name), ID: clean(id),
		Problems: problems, State: worst.state, Since: worst.Since,
	}
}

func (row placeRow) contains(text string) bool {
	if anyContains(text, row.ID, row.Name, row.State.Word, row.Detail) {
		return true
	}
	return slices.ContainsFunc(row.Problems, func(p problem) bool { return anyContains(text, p.Word, p.Why) })
}

// place is where a row is in the order of a list: what needs a look first, then by name.
type place struct {
	severity int
	name, id string
}

func (row placeRow) place() place { return place{severity(row.State), row.Name, row.ID} }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.severity, q.severity), cmp.Compare(p.name, q.name), cmp.Compare(p.id, q.id))
}

// String returns the place as a cursor, which [parsePlace] reads.
func (p place) String() string { return fmt.Sprintf("%d/%s/%s", p.severity, p.id, p.name) }

// placeID is what the id of a region may be.
var placeID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)

var placePattern = regexp.MustCompile(`^[0-9]{1,2}/[^/\x00-\x1f\x7f]{1,300}/[^\x00-\x1f\x7f]{0,300}$`)

// parsePlace reads a cursor. Empty text is the place before all.
func parsePlace(text string) place {
	if text == "" {
		return place{severity: -1}
	}
	const parts = 3
	part := strings.SplitN(text, "/", parts)
	n, _ := strconv.Atoi(part[0]) // by placePattern it is a number
	return place{n, part[2], part[1]}
}

// placesDocument is what the template places shows.
type placesDocument struct {
	Now       time.Time
	CanLogout bool
	// Section is clusters or regions, and Title the same as a heading.
	Section, Title string
	Model          listing
	Query          string
	// States counts all by state.
	States []count
}

// List is the place of the document in the navigation.
func (d placesDocument) List() string { return d.Section }

// placeList is the list of clusters, or of regions.
type placeList struct {
	section, title string
	rows           func(ctx context.Context, now time.Time) ([]placeRow, error)
	// complete adds to the rows that are shown what is too much to read for all. Nil: nothing.
	complete func(ctx context.Context, rows []placeRow) error
}

// serve shows every cluster or region, what needs a look first, or those that the query finds.
func (l placeList) serve(p *Page) func(http.ResponseWriter, *http.Request, visitor) {
	return func(w http.ResponseWriter, r *http.Request, who visitor) {
		q := adminapi.NewQuery(r)
		query := strings.TrimSpace(q.Text("q", searchPattern, "at most 100 characters without control characters"))
		after := parsePlace(q.Text("after", placePattern, "what a link to the next page has"))
		if err := q.Err(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		now := time.Now().UTC()
		rows, err := l.rows(ctx, now)
		if err != nil {
			p.fail(w, r, l.section, err)
			return
		}
		document := placesDocument{Now: now, CanLogout: who.sessionID != "", Section: l.section, Title: l.title, Query: clean(query)}
		for i := range rows {
			document.States = add(document.States, count{rows[i].State, 1})
		}
		slices.SortFunc(document.States, func(a, b count) int { return cmp.Compare(severity(a.state), severity(b.state)) })
		var shown []placeRow
		shown, document.Model = l.page(rows, query, after)
		if l.complete != nil {
			if err := l.complete(ctx, shown); err != nil {
				p.fail(w, r, l.section, err)
				return
			}
		}
		p.render(w, r, http.StatusOK, "places-list", document)
	}
}

// page returns the rows that match, and follow the given place.
func (l placeList) page(rows []placeRow, query string, after place) ([]placeRow, listing) {
	found := rows
	if text := strings.ToLower(query); text != "" {
		found = slices.DeleteFunc(slices.Clone(rows), func(row placeRow) bool { return !row.contains(text) })
	}
	slices.SortFunc(found, func(a, b placeRow) int { return a.place().compare(b.place()) })
	first := slices.IndexFunc(found, func(row placeRow) bool { return row.place().compare(after) > 0 })
	if first < 0 {
		first = len(found)
	}
	end := min(len(found), first+placesPerPage)
	shown := found[first:end]
	page := listing{Section: l.section, Query: clean(query), Rows: shown, Total: len(rows), Found: len(found)}
	if len(shown) > 0 {
		page.First, page.Last = first+1, end
	}
	if first > 0 {
		before := ""
		if first > placesPerPage {
			before = found[first-placesPerPage-1].place().String()
		}
		page.Previous = l.url(query, before)
	}
	if end < len(found) {
		page.Next = l.url(query, found[end-1].place().String())
	}
	return shown, page
}

// url returns the address of the page that follows a place.
func (l placeList) url(query, after string) string {
	values := url.Values{}
	for name, value := range map[string]string{"q": query, "after": after} {
		if value != "" {
			values.Set(name, value)
		}
	}
	address := Path + "/" + l.section
	if len(values) > 0 {
		address += "?" + values.Encode()
	}
	return address
}

// clusterList is the list of clusters.
func (p *Page) clusterList() placeList {
	return placeList{section: "clusters", title: "Clusters", rows: p.clusterRows, complete: p.fullSince}
}

func (p *Page) clusterRows(ctx context.Context, now time.Time) ([]placeRow, error) {
	list, err := p.clusters.Healths(ctx, now.Add(-progressDeadline))
	rows := make([]placeRow, len(list))
	for i := range list {
		facts := p.facts(list[i])
		rows[i] = newPlaceRow("clusters", list[i].Region, list[i].ClusterID, facts.problems(now, p.silence), inStep)
		rows[i].Heard = list[i].Contact()
		if at := list[i].Latest; at != nil {
			rows[i].Detail = number(at.Pods) + " of " + number(at.SoftLimit) + " pods"
		}
	}
	return rows, err
}

// facts adds to the health of a cluster what this process knows of it.
func (p *Page) facts(h clusters.Health) clusterFacts {
	facts := clusterFacts{Health: h, Lifetime: p.lifetime}
	if p.stateBytes != nil {
		facts.Bytes = p.stateBytes(h.ClusterID)
	}
	return facts
}

// fullSince sets since when the clusters are full or nearly full.
func (p *Page) fullSince(ctx context.Context, rows []placeRow) error {
	for is, percent := range map[state]int64{full: fullPercent, nearlyFull: nearPercent} {
		var ids []string
		for i := range rows {
			if slices.ContainsFunc(rows[i].Problems, func(p problem) bool { return p.state == is }) {
				ids = append(ids, rows[i].ID)
			}
		}
		if len(ids) == 0 {
			continue
		}
		since, err := p.clusters.FullSince(ctx, ids, percent)
		if err != nil {
			return err
		}
		for i := range rows {
			for j := range rows[i].Problems {
				if rows[i].Problems[j].state == is {
					rows[i].Problems[j].Since = since[rows[i].ID]
				}
			}
			rows[i].Since = worstOf(rows[i].Problems, rows[i].State).Since
		}
	}
	return nil
}

// regionList is the list of regions.
func (p *Page) regionList() placeList {
	return placeList{section: "regions", title: "Regions", rows: p.regionRows}
}

func (p *Page) regionRows(ctx context.Context, now time.Time) ([]placeRow, error) {
	list, err := p.regions.Healths(ctx)
	rows := make([]placeRow, len(list))
	for i := range list {
		rows[i] = newPlaceRow("regions", list[i].Scope, list[i].ID, regionProblems(&list[i], now, p.lifetime), alive)
		rows[i].Heard, rows[i].Detail = list[i].HeartbeatAt, clean(list[i].Platform)
		if list[i].CellID != "" {
			rows[i].Detail += ", cell " + clean(list[i].CellID)
		}
	}
	return rows, err
}
