package remote

import (
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// complete completes a kind, and then the names of objects by asking the server.
func complete(o *options, takes func(kind) bool) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return names(takes), cobra.ShellCompDirectiveNoFileComp
		}
		k, err := find(args[0], takes)
		if err != nil || len(args) > len(k.words) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.names(command, k, args[1:]), cobra.ShellCompDirectiveNoFileComp
	}
}

func completeList(o *options) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			var found []cobra.Completion
			for _, k := range kinds() {
				if isListed(k) {
					found = append(found, k.plural)
				}
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		}
		k, err := find(args[0], isListed)
		if err != nil || len(args) > strings.Count(k.list, "%s") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.names(command, k, args[1:]), cobra.ShellCompDirectiveNoFileComp
	}
}

// names returns what the word after these may be: of a list whose items they begin to name.
func (o *options) names(command *cobra.Command, k kind, words []string) (found []cobra.Completion) {
	list, part := k, len(words)
	for _, other := range kinds() { // the object that has the list is in a list of its own
		if len(words) == 0 && strings.Count(k.list, "%s") > 0 && len(other.words) == 1 && other.words[0] == k.words[0] && isListed(other) {
			list = other
		}
	}
	above := strings.Count(list.list, "%s")
	if above > len(words) || !isListed(list) {
		return nil
	}
	path, err := list.collection(words[:above])
	if err != nil {
		return nil
	}
	if program.ReadVariables(command.Flags(), os.LookupEnv) != nil {
		return nil
	}
	c, err := o.client(command.Context(), io.Discard)
	if err != nil {
		return nil
	}
	for item, err := range c.List(command.Context(), path, list.member, nil) {
		if err != nil {
			return found
		}
		r, err := list.item(item, time.Now())
		if err != nil || part-above >= len(r.name) || !slices.Equal(r.name[:part-above], words[above:]) {
			continue
		}
		found = append(found, r.name[part-above]+"\t"+strings.Join(r.cells, " "))
	}
	return found
}
