package kubetest

import "context"

// For tests of what only a crash or another process brings about.
var (
	LockFile = lockFile
	WorkDir  = workDir
)

// LockName is the name of the lock in a cluster's folder.
const LockName = lockName

// ErrElsewhere is what Get returns for what is left to kubectl.
var ErrElsewhere = errElsewhere

// Inside is Kubectl within the process, Process what kubectl itself answers.
func (c *Cluster) Inside(ctx context.Context, args ...string) (string, error) {
	return c.inside(ctx, args)
}

func (c *Cluster) Process(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, nil, args...)
}
