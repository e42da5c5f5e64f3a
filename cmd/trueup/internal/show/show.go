// Package show prints plans, results and tables, for people or for programs.
package show

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// Printer prints to the standard output and the standard error of a command. On a terminal
// it uses colour, unless NO_COLOR is set, and shows progress.
type Printer struct {
	out, err  io.Writer
	format    string
	wide      bool
	colour    bool // of out
	errColour bool
	terminal  bool // err is one
	width     int
	progress  bool // a line of progress stands on the terminal
}

// New returns a printer for a format: json, yaml, name, or "" for text.
func New(out, errs io.Writer, format string, wide bool) (*Printer, error) {
	switch format {
	case "", "json", "yaml", "name":
	default:
		return nil, fmt.Errorf("--output: is %q, must be json, yaml or name", format)
	}
	p := &Printer{out: out, err: errs, format: format, wide: wide, width: 120}
	coloured := os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.colour = coloured
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			p.width = width
		}
	}
	if file, ok := errs.(*os.File); ok {
		p.terminal = term.IsTerminal(int(file.Fd()))
		p.errColour = p.terminal && coloured
	}
	return p, nil
}

// Text reports whether the output is for people.
func (p *Printer) Text() bool { return p.format == "" }

// Printf prints to the standard output, if it is for people.
func (p *Printer) Printf(format string, args ...any) {
	if p.Text() {
		p.clear()
		fmt.Fprintf(p.out, format, args...) //nolint:errcheck // a reader that went away
	}
}

// Value prints a value for programs: as JSON, as YAML, or the names. It reports whether the
// format is one of these.
func (p *Printer) Value(value any, names []string) bool {
	var data []byte
	var err error
	switch p.format {
	case "":
		return false
	case "name":
		data = []byte(strings.Join(append(names, ""), "\n"))
	case "json":
		data, err = json.MarshalIndent(value, "", "  ")
		data = append(data, '\n')
	case "yaml":
		data, err = yaml.Marshal(value)
	}
	p.Error(err)
	p.out.Write(data) //nolint:errcheck // a reader that went away
	return true
}

// Error prints each of the joined errors on a line of its own.
func (p *Printer) Error(err error) {
	if err == nil {
		return
	}
	// Those of errors.Join. An error made with several %w is one error.
	if joined, ok := err.(interface{ Unwrap() []error }); ok && strings.Contains(err.Error(), "\n") {
		for _, err := range joined.Unwrap() {
			p.Error(err)
		}
		return
	}
	p.clear()
	fmt.Fprintln(p.err, paint(p.errColour, red, strings.Join(strings.Fields(err.Error()), " "))) //nolint:errcheck // a reader that went away
}

// Progress shows a line that the next one replaces, on a terminal only.
func (p *Printer) Progress(format string, args ...any) {
	if !p.terminal {
		return
	}
	line := fmt.Sprintf(format, args...)
	if utf8.RuneCountInString(line) >= p.width {
		line = string([]rune(line)[:p.width-1])
	}
	fmt.Fprint(p.err, "\r\x1b[K"+line) //nolint:errcheck // a terminal
	p.progress = true
}

func (p *Printer) clear() {
	if p.progress {
		fmt.Fprint(p.err, "\r\x1b[K") //nolint:errcheck // a terminal
		p.progress = false
	}
}

// Ask asks a person on the terminal; without one the answer is no.
func (p *Printer) Ask(in io.Reader, question string) bool {
	file, ok := in.(*os.File)
	if !ok || !p.terminal || !term.IsTerminal(int(file.Fd())) {
		return false
	}
	p.clear()
	fmt.Fprint(p.err, question+" [y/N] ") //nolint:errcheck // a terminal
	var answer string
	fmt.Fscanln(in, &answer) //nolint:errcheck // nothing is no
	return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes")
}

// Colours of a terminal.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
	bold   = "1"
)

func (p *Printer) paint(colour, text string) string { return paint(p.colour, colour, text) }

func paint(terminal bool, colour, text string) string {
	if !terminal || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Plan prints the changes with their fields: the live value, the wanted one, and the
// programs that wrote the live one.
func (p *Printer) Plan(plan diff.Plan) {
	for _, c := range plan.Changes {
		p.Change(c)
	}
}

// Removal prints an object that is to be deleted or released.
func (p *Printer) Removal(verb, id string) { p.Printf("%s\n", p.paint(red, "- "+verb+" "+id)) }

// Objects returns a number of objects in words: "1 object", "2 objects".
func Objects(n int) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
}

// Change prints one change.
func (p *Printer) Change(c diff.Change) {
	colour := map[diff.Action]string{diff.Create: green, diff.Delete: red, diff.Recreate: red}[c.Action]
	if colour == "" {
		colour = yellow
	}
	p.Printf("%s\n", p.paint(colour, c.String()))
	for _, f := range c.Fields {
		p.field(f)
	}
}

func (p *Printer) field(f diff.Field) {
	who := ""
	for _, w := range f.By {
		who += ", " + w.String()
	}
	if who != "" {
		who = p.paint(faint, "  by "+who[2:])
	}
	if f.Difference == diff.Added {
		p.Printf("    %s: added by another program, stays%s\n", p.paint(bold, f.Path), who)
		return
	}
	if p.wide {
		p.Printf("    %s  %s%s\n", p.paint(bold, f.Path), f.Difference, who)
		p.Printf("      live:   %s\n      wanted: %s\n", p.paint(red, long(f.Live)), p.paint(green, long(f.Desired)))
		return
	}
	value := fmt.Sprintf("%s -> %s", p.paint(red, p.fold(f.Live)), p.paint(green, p.fold(f.Desired)))
	switch f.Difference {
	case diff.Taken:
		value = p.fold(f.Live) + ", owned by another program"
	case diff.Released:
		value = p.fold(f.Live) + ", left to others"
	case diff.Reordered:
		value = "order " + value
	case diff.Added, diff.Changed, diff.Missing, diff.Removed:
	}
	p.Printf("    %s: %s%s\n", p.paint(bold, f.Path), value, who)
}

// long returns a value as it is.
func long(v diff.Value) string {
	if v == "" {
		return "(absent)"
	}
	return string(v)
}

// fold cuts a value at a third of the width.
func (p *Printer) fold(v diff.Value) string {
	text := []rune(v.String())
	if limit := max(24, p.width/3); len(text) > limit {
		return string(text[:limit-1]) + "…"
	}
	return string(text)
}

// Table prints rows below a head, in columns.
func (p *Printer) Table(head []string, rows [][]string) {
	if !p.Text() {
		return
	}
	p.clear()
	w := tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		fmt.Fprintln(w, strings.Join(row, "\t")) //nolint:errcheck // a reader that went away
	}
	w.Flush() //nolint:errcheck // a reader that went away
}

// Since returns how long ago a time is, such as 3m, and "-" for the zero time.
func Since(now, then time.Time) string {
	age := now.Sub(then)
	switch {
	case then.IsZero():
		return "-"
	case age < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(age.Seconds())))
	case age < time.Hour:
		return fmt.Sprintf("%dm", int(age.Minutes()))
	case age < 48*time.Hour:
		return fmt.Sprintf("%dh", int(age.Hours()))
	}
	return fmt.Sprintf("%dd", int(age.Hours()/24))
}
