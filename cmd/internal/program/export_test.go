package program

// Tag is for tests: this process has no version of a release.
var Tag = tag
