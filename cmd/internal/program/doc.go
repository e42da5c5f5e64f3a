// Package program is what the main functions under cmd share: exit statuses,
// the logger, the version and the commands that print them.
package program
