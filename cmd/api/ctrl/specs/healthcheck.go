package specs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Healthcheck is the field healthcheck of a deployment. Times are seconds.
type Healthcheck struct {
	Method              string `json:"method"`
	Path                string `json:"path"`
	IntervalSeconds     int32  `json:"intervalSeconds"`
	TimeoutSeconds      int32  `json:"timeoutSeconds"`
	FailureThreshold    int32  `json:"failureThreshold"`
	InitialDelaySeconds int32  `json:"initialDelaySeconds"`
}

func (e *Errors) healthcheck(data []byte) *Healthcheck {
	if len(data) == 0 {
		return nil
	}
	check := &Healthcheck{Method: http.MethodGet, Path: "/", IntervalSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3}
	if err := json.Unmarshal(data, &check); err != nil {
		e.Add("healthcheck", err, "a JSON object")
		return nil
	}
	if check == nil { // the JSON null
		return nil
	}
	if check.Method != http.MethodGet && check.Method != http.MethodPost {
		e.Add("healthcheck.method", check.Method, "GET or POST")
	}
	if u, err := url.ParseRequestURI(check.Path); err != nil || !strings.HasPrefix(check.Path, "/") || u.Host != "" ||
		strings.ContainsFunc(check.Path, func(r rune) bool { return r <= ' ' || r > '~' }) {
		e.Add("healthcheck.path", check.Path, "a path that begins with /, in printable ASCII")
	}
	for _, field := range []struct {
		name  string
		value int32
		least int32
	}{
		{"intervalSeconds", check.IntervalSeconds, 1},
		{"timeoutSeconds", check.TimeoutSeconds, 1},
		{"failureThreshold", check.FailureThreshold, 1},
		{"initialDelaySeconds", check.InitialDelaySeconds, 0},
	} {
		if field.value < field.least {
			e.Add("healthcheck."+field.name, field.value, fmt.Sprint(field.least, " or more"))
		}
	}
	return check
}
