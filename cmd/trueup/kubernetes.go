package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// clusterCommand starts a Kubernetes of its own, to try an operator or a folder on.
func (o *options) clusterCommand() *cobra.Command {
	var build bool
	var nodes int
	c := &cobra.Command{
		Use: "cluster FOLDER", Short: "Start a Kubernetes to try things on, with simulated nodes, until it is interrupted",
		Long: "Start a Kubernetes with controllers, a scheduler and simulated nodes, without a container engine. FOLDER gets the files " +
			"kubeconfig and kubectl once it is ready, and loses them at the end, with everything in the cluster. The first " +
			"time it is built from Go modules, which needs go, takes 4 to 8 minutes on 2 cores, and is kept in ~/.cache/trueup.",
		Args: func(c *cobra.Command, args []string) error {
			if build && len(args) == 0 {
				return nil
			}
			return oneFolder(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if nodes < 1 || nodes > 100 {
				return program.Usagef("--nodes: is %d, must be 1 to 100", nodes)
			}
			if build {
				path, err := kubetest.BuildAssets(c.Context(), c.ErrOrStderr())
				if err == nil {
					_, err = fmt.Fprintln(c.OutOrStdout(), path)
				}
				return err
			}
			return o.serveCluster(c, args[0], nodes)
		},
	}
	c.Flags().BoolVar(&build, "build", false, "only build it, and print the folder, which is one for KUBEBUILDER_ASSETS")
	c.Flags().IntVar(&nodes, "nodes", 1, "how many simulated nodes run pods, 110 each")
	return c
}

// serveCluster runs a cluster until ctx ends.
func (*options) serveCluster(c *cobra.Command, folder string, nodes int) (err error) {
	folder, err = filepath.Abs(folder)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return program.Usagef("FOLDER: %w", err)
	}
	access, kubectl := filepath.Join(folder, "kubeconfig"), filepath.Join(folder, "kubectl")
	if err := errors.Join(unlink(access), unlink(kubectl)); err != nil {
		return err
	}
	cluster, err := kubetest.Run(c.Context(), kubetest.Options{Controllers: true, Scheduler: true, Nodes: nodes, Progress: c.ErrOrStderr()})
	if err != nil {
		return errors.Join(context.Cause(c.Context()), err)
	}
	defer cluster.Stop()
	// The file comes last: who waits for it finds kubectl.
	if err := errors.Join(os.Symlink(cluster.KubectlPath(), kubectl), os.Symlink(cluster.Kubeconfig, access)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(access), os.Remove(kubectl)) }()
	_, err = fmt.Fprintf(c.OutOrStdout(), "export KUBECONFIG=%s PATH=%s:$PATH\n", access, folder)
	if err != nil {
		return err
	}
	<-c.Context().Done()
	return nil
}

// unlink removes the link that an earlier cluster has left, and refuses what is no link.
func unlink(at string) error {
	info, err := os.Lstat(at)
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil && info.Mode()&os.ModeSymlink == 0 {
		return program.Usagef("FOLDER: has a file %s that is none of an earlier cluster: choose another folder", filepath.Base(at))
	}
	return errors.Join(err, os.Remove(at))
}
