package main

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/kubelet"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
)

const localMachine = "local-machine" // the command that is a machine

func (o *options) localFlags(f *pflag.FlagSet) {
	f.StringVar(&o.directory, "local-directory", "", "folder of the machines of local; default: nodepool in the user's cache")
	f.StringVar(&o.machines, "local-kubeconfig", "",
		"kubeconfig file with which machines of local join, with the rights of a kubelet; default: that of --kubeconfig")
}

// local is the cloud of this machine. Its machines are started again by others than this
// process, from any folder: every path is absolute.
func (o options) local() (cloud operator.Local, err error) {
	dir := o.directory
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return cloud, fmt.Errorf("--local-directory: is not set, must be a folder, as this user has no cache: %w", err)
		}
		dir = filepath.Join(cache, "nodepool")
	}
	if dir, err = usable(dir); err != nil {
		return cloud, fmt.Errorf("--local-directory: is %s, must be a folder that this user can write: %w", dir, err)
	}
	path, err := os.Executable()
	words := []string{quoted(path), localMachine}
	if kubeconfig := cmp.Or(o.machines, o.kubeconfig); kubeconfig != "" {
		absolute, failed := filepath.Abs(kubeconfig)
		err = errors.Join(err, failed)
		words = append(words, "--kubeconfig", quoted(absolute))
	}
	return operator.Local{Dir: dir, Command: strings.Join(words, " ")}, err
}

// usable makes a folder, tries to write to it, and returns its absolute path.
func usable(dir string) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return dir, err
	}
	if err := os.MkdirAll(absolute, 0o700); err != nil {
		return absolute, err
	}
	file, err := os.CreateTemp(absolute, ".write-*")
	if err != nil {
		return absolute, err
	}
	return absolute, errors.Join(file.Close(), os.Remove(file.Name()))
}

// validateLocal returns an error if the file that machines join with cannot be read.
func (o options) validateLocal() error {
	if o.machines == "" {
		return nil
	}
	if _, err := os.ReadFile(o.machines); err != nil {
		return fmt.Errorf("--local-kubeconfig: %w", program.Unreadable(o.machines, err))
	}
	return nil
}

// joinLocally sets what user data must have and a local machine, which joins with its
// kubeconfig, does not read.
func (o *options) joinLocally() {
	o.endpoint = cmp.Or(o.endpoint, "https://localhost")
	o.ca = cmp.Or(o.ca, base64.StdEncoding.EncodeToString([]byte("that of the kubeconfig")))
	o.cidr = cmp.Or(o.cidr, "10.96.0.0/12")
}

// quoted is a word of /bin/sh.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// localMachineCommand is a machine of the provider local.
func localMachineCommand() *cobra.Command {
	var kubeconfig, level string
	c := &cobra.Command{
		Use: localMachine, Short: "Be a machine, which cloud/local has started", Hidden: true, Args: program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := thisMachine(os.Getenv)
			if err != nil {
				return &program.UsageError{Err: err}
			}
			if p.Logger, err = program.NewLogger(c.OutOrStdout(), level); err != nil {
				return &program.UsageError{Err: err}
			}
			if p.Kubernetes, err = kubeaccess.Config(kubeconfig, p.Logger); err != nil {
				return &program.UsageError{Err: err}
			}
			return p.Start(c.Context())
		},
	}
	program.KubeconfigFlag(c.Flags(), &kubeconfig)
	program.LogLevelFlag(c.Flags(), &level)
	return c
}

// thisMachine reads what cloud/local has put into the environment.
func thisMachine(getenv func(string) string) (p kubelet.Process, err error) {
	boot, err := strconv.Atoi(getenv("MACHINE_BOOT"))
	if err != nil {
		return p, errors.New("MACHINE_BOOT: must be a number: only cloud/local starts a machine")
	}
	p.ID, p.Type, p.UserData, p.Boot = getenv("MACHINE_NAME"), getenv("MACHINE_TYPE"), getenv("MACHINE_USER_DATA"), boot
	id := getenv("MACHINE_PROVIDER_ID") // local:///<zone>/<id>
	p.Cloud, p.Zone = operator.LocalCloud, filepath.Base(filepath.Dir(id))
	return p, nil
}
