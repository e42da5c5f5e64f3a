package statuspage

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
)

// content is what the template of a section gets.
type content struct {
	Now   time.Time
	Model any
}

// when is a time beside the time at which it is looked at.
type when struct{ Now, At time.Time }

// Age is how long ago it was, in the words of script.js.
func (w when) Age() string { return age(w.Now.Sub(w.At)) }

// Clock is the time of day, with the day if that is another.
func (w when) Clock() string {
	if w.Now.Format(time.DateOnly) == w.At.Format(time.DateOnly) {
		return w.At.Format("15:04:05")
	}
	return w.At.Format("2 Jan 15:04")
}

// Exact is the time to the second.
func (w when) Exact() string { return w.At.Format("2006-01-02 15:04:05") + " UTC" }

// Machine is the time for programs.
func (w when) Machine() string { return w.At.Format(time.RFC3339) }

func age(d time.Duration) string {
	switch {
	case d < 90*time.Second:
		return fmt.Sprintf("%d s ago", max(0, int(d.Seconds())))
	case d < 90*time.Minute:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 36*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d d ago", int(d.Hours()/24))
}

// number writes n with a comma at each thousand.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// functions returns the functions of the templates.
func functions() template.FuncMap {
	return template.FuncMap{
		"when":   func(now, at time.Time) when { return when{now, at.UTC()} },
		"number": number,
		// changes is what the template of the section changes gets.
		"changes": func(now time.Time, list []change) content {
			return content{now, listing{Rows: list, Total: len(list), Found: len(list)}}
		},
		"count": func(n int) string { return number(int64(n)) },
	}
}

// execute returns what the template of that name makes of data.
func execute(t *template.Template, name string, data any) (string, error) {
	var text strings.Builder
	if err := t.ExecuteTemplate(&text, name, data); err != nil {
		return "", fmt.Errorf("template %s: %w", name, err)
	}
	return text.String(), nil
}
