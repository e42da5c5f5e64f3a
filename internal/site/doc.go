// Package site has no code of its own: config.js makes a site of the pages of this repository with
// VitePress, plots.js draws the plots of docs/figures.md, and the tests build the site and look at it.
package site
