package chart

import (
	"slices"
	"strconv"
)

// Tradeoff are two figures that depend on one choice, each with an axis of its own.
type Tradeoff struct {
	// Title is the headline, Choice names what is chosen.
	Title, Choice string
	// Choices are what can be chosen, in ascending order, none of them negative.
	Choices []int
	// Left and Right are the figures.
	Left, Right Figure
	// Chosen is marked, if it is one of Choices.
	Chosen int
}

// A Figure is a number for each choice.
type Figure struct {
	// Name stands at the axis, with the unit.
	Name string
	// Values are in the order of the choices, none of them negative.
	Values []float64
}

const (
	leftColor  = "#b3261e"
	rightColor = "#2f6fb0"
)

// SVG returns the picture as a document.
func (t Tradeoff) SVG() []byte { return Page("", t) }

func (t Tradeoff) draw(c *canvas, top float64) {
	c.frame(top, t.Title, t.Choice)
	c.legend(top, []entry{{t.Left.Name, leftColor, true}, {t.Right.Name, rightColor, true}})
	if len(t.Choices) == 0 {
		return
	}
	most := max(1, t.Choices[len(t.Choices)-1])
	const inset = 30 // of the first and the last choice
	x := func(choice int) float64 {
		return left + inset + float64(choice)/float64(most)*(right-left-2*inset)
	}
	low, high := top+head+plot, top+head
	for _, choice := range t.Choices {
		c.line(x(choice), low, x(choice), low+5, faint, "")
		c.text(x(choice), low+20, text{anchor: "middle"}, strconv.Itoa(choice))
	}
	for i, f := range []Figure{t.Left, t.Right} {
		color, a := leftColor, newAxis(slices.Max(append([]float64{0}, f.Values...)), false)
		if i == 1 {
			color = rightColor
		}
		c.vertical(top, a, f.Name, color, i == 1)
		if i == 0 && slices.Contains(t.Choices, t.Chosen) {
			c.line(x(t.Chosen), low, x(t.Chosen), high-4, faint, ` stroke-dasharray="4 4"`)
			c.text(x(t.Chosen), high-8, text{anchor: "middle", fill: faint}, "chosen: "+strconv.Itoa(t.Chosen))
		}
		var points []point
		for n, choice := range t.Choices {
			if n < len(f.Values) {
				points = append(points, point{x(choice), low - a.at(f.Values[n])*plot})
			}
		}
		c.path(points, `fill="none" stroke="`+color+`" stroke-width="2.5" stroke-linejoin="round"`, false)
		for _, p := range points {
			c.b.WriteString(`<circle cx="` + num(p.x) + `" cy="` + num(p.y) + `" r="4" fill="` + color + `"/>` + "\n")
		}
	}
}
