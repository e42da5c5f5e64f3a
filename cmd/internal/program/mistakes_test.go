package program_test

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func TestAMistypedWordIsToldWhatMayHaveBeenMeant(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"unknown flag: --kubeconfg, is it --kubeconfig?":                   {"--kubeconfg", "a"},
		"unknown flag: --kubcnfig, is it --kubeconfig?":                    {"--kubcnfig"},
		"unknown flag: --kbcnfig":                                          {"--kbcnfig"},
		"unknown flag: --kubeocnfig, is it --kubeconfig?":                  {"--kubeocnfig=a"},
		"unknown flag: --kube, is it --kubeconfig or --kubeconform?":       {"--kube"},
		"unknown flag: --kub":                                              {"--kub"},
		"unknown flag: --secre":                                            {"--secre"},
		"unknown flag: --listening":                                        {"manifests", "--listening"},
		"unknown flag: --lissen, is it --listen?":                          {"manifests", "--lissen", ":1"},
		"unknown shorthand flag: 'x' in -x":                                {"-x"},
		`unknown command "manifsets" for "tool", is it manifests?`:         {"manifsets"},
		`unknown command "gt" for "tool", is it get?`:                      {"gt", "-f", "shop"},
		`unknown command "manifsts" for "tool", is it manifests?`:          {"manifsts", "--loud", "more"},
		`unknown command "man1" for "tool", is it man?`:                    {"man1", "--kubecfg"},
		`unknown command "zzz" for "tool"`:                                 {"zzz", "-x"},
		`unknown command "lst" for "tool get", is it list?`:                {"get", "lst", "-x"},
		`unknown command "manifest" for "tool", is it manifests?`:          {"manifest"},
		`unknown command "false" for "tool", must be --wake=false`:         {"--wake", "false"},
		`unknown command "true" for "tool manifests", must be --loud=true`: {"manifests", "--loud", "true"},
		`unknown command "false" for "tool"`:                               {"--listen", ":1", "false"},
		`unknown command "more" for "tool manifests"`:                      {"manifests", "--loud", "more"},
	} {
		command := &cobra.Command{Use: "tool", Args: program.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
		for _, name := range []string{"kubeconfig", "kubeconform", "listen", "secret"} {
			command.Flags().String(name, "", "")
		}
		require.NoError(t, command.Flags().MarkHidden("secret"))
		command.Flags().Bool("wake", true, "")
		manifests := &cobra.Command{Use: "manifests", Args: program.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
		manifests.Flags().Bool("loud", false, "")
		manifests.Flags().String("listen", "", "")
		get := &cobra.Command{Use: "get"}
		get.AddCommand(&cobra.Command{Use: "list", RunE: func(*cobra.Command, []string) error { return nil }})
		command.AddCommand(manifests, get)
		var out, err bytes.Buffer
		require.Equal(t, program.ExitUsage, program.Run(t.Context(), command, args, &out, &err), want)
		require.Equal(t, "tool: "+want+"\n", err.String())
	}
}
