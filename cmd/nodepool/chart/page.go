package chart

import (
	"fmt"
	"html"
	"strconv"
	"strings"
)

// The sizes of a page in pixels. The plot is the part of a panel inside its axes.
const (
	pageWidth = 960
	left      = 76
	right     = 884
	head      = 80 // above the plot: title and legend
	plot      = 280
	foot      = 56 // below it: ticks and label
	header    = 34 // of the page
)

const (
	ink   = "#222222"
	faint = "#666666"
	grid  = "#e3e3e3"
)

// A Panel is one picture of a page: a [States] or a [Tradeoff].
type Panel interface {
	draw(c *canvas, top float64)
}

// Page returns the panels below each other as an SVG document. Without a title it has no
// headline.
func Page(title string, panels ...Panel) []byte {
	top := 0.0
	if title != "" {
		top = header
	}
	height := top + float64(len(panels))*(head+plot+foot)
	c := &canvas{}
	fmt.Fprintf(
		&c.b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%s" viewBox="0 0 %d %s" font-family="Helvetica, Arial, sans-serif" font-size="12">`+"\n",
		pageWidth,
		num(height),
		pageWidth,
		num(height),
	)
	fmt.Fprintf(&c.b, `<rect width="%d" height="%s" fill="#ffffff"/>`+"\n", pageWidth, num(height))
	if title != "" {
		c.text(pageWidth/2, 26, text{anchor: "middle", size: 16, bold: true}, title)
	}
	for _, p := range panels {
		p.draw(c, top)
		top += head + plot + foot
	}
	c.b.WriteString("</svg>\n")
	return []byte(c.b.String())
}

// canvas collects the elements of a document.
type canvas struct{ b strings.Builder }

// num writes a coordinate.
func num(f float64) string {
	s := strconv.FormatFloat(f, 'f', 1, 64)
	if s = strings.TrimSuffix(s, ".0"); s == "-0" {
		return "0"
	}
	return s
}

// text is how a text looks; the zero value is black, of 12 pixels, and begins at its place.
type text struct {
	anchor, fill string
	size         int
	bold, upward bool
}

func (c *canvas) text(x, y float64, t text, s string) {
	fmt.Fprintf(&c.b, `<text x="%s" y="%s"`, num(x), num(y))
	if t.anchor != "" {
		fmt.Fprintf(&c.b, ` text-anchor="%s"`, t.anchor)
	}
	if t.fill == "" {
		t.fill = ink
	}
	fmt.Fprintf(&c.b, ` fill="%s"`, t.fill)
	if t.size > 0 {
		fmt.Fprintf(&c.b, ` font-size="%d"`, t.size)
	}
	if t.bold {
		c.b.WriteString(` font-weight="bold"`)
	}
	if t.upward {
		fmt.Fprintf(&c.b, ` transform="rotate(-90 %s %s)"`, num(x), num(y))
	}
	fmt.Fprintf(&c.b, ">%s</text>\n", html.EscapeString(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, color, more string) {
	fmt.Fprintf(&c.b, `<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s"%s/>`+"\n", num(x1), num(y1), num(x2), num(y2), color, more)
}

func (c *canvas) rect(x, y, w, h float64, fill string) {
	fmt.Fprintf(&c.b, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>`+"\n", num(x), num(y), num(w), num(h), fill)
}

// point is a place on the page.
type point struct{ x, y float64 }

// path draws through points; area fills what they go around.
func (c *canvas) path(points []point, attributes string, area bool) {
	c.b.WriteString(`<path d="`)
	for i, p := range points {
		command := "L"
		if i == 0 {
			command = "M"
		}
		c.b.WriteString(command + num(p.x) + " " + num(p.y))
	}
	if area {
		c.b.WriteString("Z")
	}
	fmt.Fprintf(&c.b, `" %s/>`+"\n", attributes)
}

// entry is one entry of a legend.
type entry struct {
	name, color string
	line        bool
}

// legend draws entries from the left.
func (c *canvas) legend(top float64, entries []entry) {
	x, y := float64(left), top+46
	for _, e := range entries {
		if e.line {
			c.line(x, y-4, x+18, y-4, e.color, ` stroke-width="2.5"`)
		} else {
			c.rect(x, y-10, 18, 12, e.color)
		}
		c.text(x+24, y, text{}, e.name)
		x += 24 + 6.8*float64(len([]rune(e.name))) + 20
	}
}

// frame draws the title of a panel, the lines of its plot and its labels.
func (c *canvas) frame(top float64, title, below string) {
	c.text(left, top+24, text{size: 14, bold: true}, title)
	c.line(left, top+head+plot, right, top+head+plot, faint, "")
	c.text((left+right)/2, top+head+plot+42, text{anchor: "middle", fill: faint}, below)
}

// vertical draws an axis on the left or right of a plot. Only that on the left has lines
// across.
func (c *canvas) vertical(top float64, a axis, label, color string, onRight bool) {
	for _, tick := range a.ticks {
		y := top + head + plot - a.at(tick)*plot
		if onRight {
			c.line(right, y, right+5, y, faint, "")
			c.text(right+9, y+4, text{fill: color}, a.format(tick))
			continue
		}
		if tick > 0 {
			c.line(left, y, right, y, grid, "")
		}
		c.line(left-5, y, left, y, faint, "")
		c.text(left-9, y+4, text{anchor: "end", fill: color}, a.format(tick))
	}
	x, middle := float64(20), top+head+plot/2
	if onRight {
		x = pageWidth - 14
	}
	c.text(x, middle, text{anchor: "middle", fill: color, upward: true, bold: true}, label)
}
