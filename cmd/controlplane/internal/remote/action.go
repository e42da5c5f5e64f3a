package remote

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/client"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func approveCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "approve cluster|region NAME [DIGEST]",
		Short: "Let an agent carry out the deletions that it holds",
		Long: `Let an agent carry out the deletions that it holds.

Without a digest it shows what is held, and changes nothing. The digest names exactly what was
shown: if the agent holds something else by now, the request is refused.`,
		ValidArgsFunction: complete(&o, has("cluster", "region")),
		RunE: func(command *cobra.Command, args []string) error {
			name, words := first(args)
			k, err := find(name, has("cluster", "region"))
			if err != nil {
				return err
			}
			const withDigest = 2
			var digest string
			if len(words) == withDigest {
				words, digest = words[:1], words[1]
			}
			path, err := k.object(words)
			if err != nil {
				return err
			}
			if digest == "" {
				return o.held(command, k, path, words[0])
			}
			return o.ask(command, http.MethodPost, path+"/allow-mass-delete", client.Request{Body: map[string]string{"digest": digest}})
		},
	}
	o.flags(command, true)
	return command
}

// held shows the deletions that wait for an approval.
func (o *options) held(command *cobra.Command, k kind, path, name string) error {
	c, err := o.client(command.Context(), command.ErrOrStderr())
	if err != nil {
		return err
	}
	var object struct {
		HeldDeletions     json.RawMessage `json:"held_deletions"`
		ApprovedDeletions string          `json:"approved_deletions"`
		ErrorClass        string          `json:"reported_error_class"`
		Message           string          `json:"reported_message"`
	}
	if err := c.Do(command.Context(), http.MethodGet, path, client.Request{}, &object); err != nil {
		return err
	}
	out := command.OutOrStdout()
	if len(object.HeldDeletions) == 0 && object.ErrorClass != "" {
		_, err := fmt.Fprintf(out, "The agent of %s %s holds no deletions that can be approved. It reports %s: %s\n",
			k.name, name, printable(object.ErrorClass), printable(object.Message))
		return err
	}
	if len(object.HeldDeletions) == 0 {
		_, err := fmt.Fprintf(out, "The agent of %s %s holds no deletions.\n", k.name, name)
		return err
	}
	var held struct {
		Digest string `json:"digest"`
	}
	if err := json.Unmarshal(object.HeldDeletions, &held); err != nil {
		return err
	}
	if err := o.show(out, object.HeldDeletions); err != nil || o.output != "" {
		return err
	}
	next := "Approve them with: " + program.CommandLine("controlplane approve", k.name, name, held.Digest)
	if held.Digest == object.ApprovedDeletions {
		next = "They are approved; the agent has not reported since."
	}
	_, err = fmt.Fprintln(out, next)
	return err
}

func rotateCommand() *cobra.Command {
	var o options
	var overlap time.Duration
	command := &cobra.Command{
		Use:   "rotate cluster|region NAME",
		Short: "Make another token for an agent",
		Long: `Make another token for an agent, and print it.

The token of before ends at once, or after --overlap: give the new one to the agent within
that time.`,
		ValidArgsFunction: complete(&o, has("cluster", "region")),
		RunE: func(command *cobra.Command, args []string) error {
			_, path, err := target(args, has("cluster", "region"))
			if err != nil {
				return err
			}
			if overlap < 0 || overlap%time.Second != 0 {
				return program.Usagef("--overlap: is %s, must be whole seconds", overlap)
			}
			return o.ask(command, http.MethodPost, path+"/rotate-token",
				client.Request{Body: map[string]int64{"overlap_seconds": int64(overlap / time.Second)}})
		},
	}
	o.flags(command, true)
	command.Flags().DurationVar(&overlap, "overlap", 0, "how long the token of before stays valid at most, up to 168h")
	return command
}
