package kubetest

import "context"

// ErrElsewhere is what Get returns for what is left to kubectl.
var ErrElsewhere = errElsewhere

// Inside is Kubectl within the process, Process what kubectl itself answers.
func (c *Cluster) Inside(ctx context.Context, args ...string) (string, error) {
	return c.inside(ctx, args)
}

func (c *Cluster) Process(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, nil, args...)
}
