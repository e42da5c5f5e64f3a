package benchfigures

import (
	"errors"
	"fmt"
	"strings"
)

// Mark is a figure beside the value that it should reach.
type Mark struct {
	// ID is the mark's own, such as D1.
	ID string
	// What says what is measured, for people.
	What string
	// Figure is the name of the value. Required.
	Figure string
	// Limit is the mark, from below unless AtLeast. Exactly: neither more nor less, as always with a limit
	// of zero. NoLimit: there is no mark.
	Limit   float64
	AtLeast bool
	Exactly bool
	NoLimit bool
	// Hard is whether missing it is an error rather than a finding.
	Hard bool
	// Peers are names of figures to show beside it.
	Peers []string
	// Ratio is the name of the figure that compares it to a peer, if any.
	Ratio string
}

// reached reports whether a value reaches the mark.
func (m Mark) reached(value float64) bool {
	switch {
	case m.NoLimit:
		return true
	case m.AtLeast:
		return value >= m.Limit
	case m.exact():
		return value == m.Limit
	default:
		return value <= m.Limit
	}
}

// exact reports whether more and less than the limit are both wrong.
func (m Mark) exact() bool { return !m.AtLeast && (m.Exactly || m.Limit == 0) }

// verdict says it in words: a mark that is not reached, by how much.
func (m Mark) verdict(value float64) string {
	switch {
	case m.NoLimit:
		return ""
	case m.reached(value):
		return "reached"
	case m.exact():
		return "**not reached**"
	default:
		return fmt.Sprintf("**not reached**: %.2f of the mark", value/m.Limit)
	}
}

func (m Mark) limit(unit string) string {
	if m.NoLimit {
		return ""
	}
	sign := "≤ "
	switch {
	case m.AtLeast:
		sign = "≥ "
	case m.exact():
		sign = ""
	}
	return strings.TrimSpace(sign + Figure{Value: m.Limit}.number() + " " + spaced(unit))
}

// Table returns the marks as a Markdown table. The error has of each hard one that is missed the figure, what
// it is, and what it must be: those that were not measured count as such. The table is there also then.
func (b *Book) Table(marks []Mark) (table string, err error) {
	var missed []string
	var t strings.Builder
	t.WriteString("| | what | trueup | mark | | peers | against a peer |\n|---|---|---|---|---|---|---|\n")
	for _, m := range marks {
		f, ok := b.Get(m.Figure)
		ours, verdict := f.cell(), m.verdict(f.Value)
		if !ok {
			ours, verdict = "", "not measured"
		}
		switch named := strings.TrimSpace(m.ID + " " + m.Figure); {
		case m.Hard && !ok:
			missed = append(missed, named+": was not measured, must be "+m.limit(""))
		case m.Hard && !m.reached(f.Value):
			missed = append(missed, named+": is "+f.cell()+", must be "+m.limit(f.Unit))
		}
		var peers []string
		for _, name := range m.Peers {
			if p, ok := b.Get(name); ok {
				peers = append(peers, p.label()+" "+p.cell())
			}
		}
		ratio, _ := b.Get(m.Ratio)
		fmt.Fprintf(&t, "| %s | %s | %s | %s | %s | %s | %s |\n",
			m.ID, m.What, ours, m.limit(f.Unit), verdict, strings.Join(peers, ", "), strings.TrimSpace(ratio.label()+" "+ratio.cell()))
	}
	if len(missed) > 0 {
		err = errors.New("hard marks missed: " + strings.Join(missed, "; "))
	}
	return t.String(), err
}

// cell is the value as it stands in a table.
func (f Figure) cell() string {
	if f.Unit == "" {
		return ""
	}
	return f.number() + " " + spaced(f.Unit)
}

// label is the part of a name that says whose figure it is: before the last dot.
func (f Figure) label() string {
	return spaced(f.Name[:max(0, strings.LastIndexByte(f.Name, '.'))])
}

func spaced(s string) string { return strings.ReplaceAll(s, "_", " ") }
