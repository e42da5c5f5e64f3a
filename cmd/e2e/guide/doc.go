// Package guide has no code: its tests run the commands of the pages in docs.
package guide
