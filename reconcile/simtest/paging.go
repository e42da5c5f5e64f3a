package simtest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// page is which part of which state a list is about.
type page struct {
	version int64
	limit   int    // 0: no limit
	from    string // the first name, or namespace and name
	call    call
}

// token is what a client gets to continue a list with.
type token struct {
	Version string `json:"v"`
	At      int64  `json:"rv"`
	Start   string `json:"start"`
}

func (t token) String() string {
	data, err := json.Marshal(t)
	if err != nil {
		return "" // of a number and two strings: it cannot fail
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// within is what a continue token says of an object: its name, below the namespace of
// the list.
func (c call) within(k key) string {
	if c.Namespace != "" {
		return "/" + k.name
	}
	return k.path()
}

// start is the index of the first object of the page.
func (p page) start(keys []key) int {
	if p.from == "" {
		return 0
	}
	i, _ := slices.BinarySearchFunc(keys, p.from, func(k key, from string) int { return strings.Compare(p.call.within(k), from) })
	return i
}

// page reads the options of a list.
func (s *Server) page(c call) (page, *answer) {
	p := page{version: s.readAt(c), call: c}
	if text := c.option("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil {
			return p, badRequest(c, err.Error())
		}
		p.limit = max(limit, 0)
	}
	text, match, again := c.option("resourceVersion"), c.option("resourceVersionMatch"), c.option("continue")
	switch {
	case c.option("sendInitialEvents") != "":
		return p, invalidOption(c, "ListOptions", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list")
	case match != "" && text == "":
		return p, invalidOption(
			c,
			"ListOptions",
			"resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
		)
	case match != "" && again != "":
		return p, invalidOption(c, "ListOptions", "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided")
	case match != "" && match != "Exact" && match != "NotOlderThan":
		return p, invalidOption(c, "ListOptions", fmt.Sprintf("resourceVersionMatch: Unsupported value: %q", match))
	case match == "Exact" && text == "0":
		return p, invalidOption(
			c,
			"ListOptions",
			"resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
		)
	}
	var version int64
	if text != "" {
		var err error
		if version, err = strconv.ParseInt(text, 10, 64); err != nil || version < 0 {
			return p, badRequest(c, fmt.Sprintf("invalid resource version: resourceVersion: Invalid value: %q", text))
		}
	}
	if again != "" {
		return s.continued(c, p, again, version)
	}
	switch {
	case version > s.version:
		return p, s.tooLarge(c, version)
	case match == "Exact", match == "" && p.limit > 0 && version > 0:
		if version < s.compacted {
			return p, expired(c, fmt.Sprintf("The resourceVersion for the provided list is too old: %d (%d)", version, s.compacted))
		}
		p.version = version
	case text == "0":
		p.limit = 0 // as from the cache of a real server
	}
	return p, nil
}

func expired(c call, why string) *answer {
	return errorStatus(http.StatusGone, "Expired", why, c).about(nil)
}

// continued is the page that a token stands for.
func (s *Server) continued(c call, p page, text string, version int64) (page, *answer) {
	var t token
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	switch {
	case err != nil:
		return p, badRequest(c, fmt.Sprintf("invalid continue token: continue key is not valid: %v", err))
	case t.Version != "meta.k8s.io/v1" || t.At == 0 || t.Start == "":
		return p, badRequest(c, "invalid continue token: continue key is not valid: incorrect encoded start resourceVersion")
	case version > 0:
		return p, badRequest(c, "specifying resource version is not allowed when using continue")
	}
	p.from = t.Start
	switch {
	case t.At < 0: // the rest, of the newest state
		p.version = s.version
	case t.At < s.compacted:
		a := expired(c, "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "+
			"continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the "+
			"provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first "+
			"chunk was returned and now may show up in the list.")
		a.body.Set(token{Version: t.Version, At: -1, Start: t.Start}.String(), "metadata", "continue")
		return p, a
	default:
		p.version = t.At
	}
	return p, nil
}
