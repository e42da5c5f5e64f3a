package program

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// NoArgs is the Args of a command that takes none. The error says what may have been meant.
func NoArgs(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], command.CommandPath())
	if args[0] == "true" || args[0] == "false" {
		command.Flags().Visit(func(f *pflag.Flag) {
			if f.NoOptDefVal != "" {
				text += fmt.Sprintf(", must be --%s=%s", f.Name, args[0])
			}
		})
	}
	return Usagef("%s%s", text, meant(nearCommands(command, args[0])))
}

// nearCommands returns the subcommands that a word may have been meant for.
func nearCommands(command *cobra.Command, word string) (near []string) {
	most := 2
	if len(word) < 5 {
		most = 1 // else most short words are near
	}
	for _, sub := range command.Commands() {
		known := slices.ContainsFunc(append([]string{sub.Name()}, sub.Aliases...), func(name string) bool {
			return distance(word, name) <= most || len(word) > 2 && strings.HasPrefix(name, word)
		})
		if known && sub.IsAvailableCommand() {
			near = append(near, sub.Name())
		}
	}
	return near
}

// wrongBefore returns the error about words before an unknown flag. In "dif -f shop" the word is
// wrong: the flag belongs to the command diff.
func wrongBefore(command *cobra.Command) error {
	words := command.Flags().Args()
	if !command.HasAvailableSubCommands() || len(words) == 0 || command.Args == nil {
		return nil
	}
	return command.Args(command, words)
}

// unknownFlag says which flag of the command may have been meant.
func unknownFlag(command *cobra.Command, err *pflag.NotExistError) error {
	name := err.GetSpecifiedName()
	var near []string
	command.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && len(name) > 1 && (distance(name, f.Name) <= 2 || len(name) > 3 && strings.HasPrefix(f.Name, name)) {
			near = append(near, "--"+f.Name)
		}
	})
	return Usagef("%w%s", err, meant(near))
}

func meant(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", is it " + strings.Join(names, " or ") + "?"
}

// distance is how many letters have to be added, removed, replaced or swapped with the next one.
func distance(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			same := last[j]
			if a[i] != b[j] {
				same++
			}
			row[j+1] = min(same, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
