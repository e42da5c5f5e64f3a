package cloudtest

import "context"

// Conform returns what each check of Run finds wrong with a provider.
func Conform(ctx context.Context, subject Subject) map[string]error {
	found := map[string]error{}
	for _, c := range checks {
		s := newSession(subject, c.name)
		ctx, cancel := context.WithTimeout(ctx, 4*s.Limit)
		if err := c.check(ctx, s); err != nil {
			found[c.name] = err
		}
		cancel()
	}
	return found
}
