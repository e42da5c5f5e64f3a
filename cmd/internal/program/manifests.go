package program

import (
	"fmt"

	"github.com/spf13/cobra"
)

// ManifestsCommand returns the command that prints what a program needs in its cluster.
// yaml is called after the flags are read, which the caller adds.
func ManifestsCommand(short string, yaml func() (string, error)) *cobra.Command {
	return &cobra.Command{
		Use: "manifests", Short: short, Args: NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := yaml()
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
}
