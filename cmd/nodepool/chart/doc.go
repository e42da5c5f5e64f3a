// Package chart draws the machines of a pool as SVG: [States] has the machines by state
// over time, [Tradeoff] two figures that depend on one choice. [Page] puts them below each
// other.
//
// A picture has a white background and text of its own, no script and no reference to
// another file. Equal input gives equal bytes.
package chart
