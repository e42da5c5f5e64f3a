package cloudtest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
)

// The mistakes of providers, and the check that finds each.
const (
	properties = "a launched machine has the requested properties"
	shared     = "two processes with one token create one machine"
	spent      = "a token of a terminated machine creates none beside it"
	ends       = "a machine stops, starts and ends"
	leaves     = "a deleted machine leaves the lists"
	pages      = "a list has all of its pages"
	spelling   = "tags keep their spelling"
	unknown    = "an unknown machine is not found"
	allTags    = "a list has the machines with all tags"
)

// bad is a provider with a mistake: each function that is set replaces a method.
type bad struct {
	cloud.Provider
	launch    func(context.Context, cloud.LaunchConfig) (cloud.Instance, error)
	terminate func(context.Context, string) error
	state     func(context.Context, string) (cloud.InstanceState, error)
	list      func(context.Context, map[string]string) ([]cloud.Instance, error)
	tags      func(map[string]string) map[string]string // as the cloud keeps them
	// noZone removes the zone from every answer, and the address.
	noZone bool
}

func (b *bad) changed(i cloud.Instance) cloud.Instance {
	if b.noZone {
		i.AvailabilityZone, i.PrivateIP = "", ""
	}
	return i
}

func (b *bad) spelled(tags map[string]string) map[string]string {
	if b.tags == nil {
		return tags
	}
	return b.tags(tags)
}

func (b *bad) LaunchInstance(ctx context.Context, c cloud.LaunchConfig) (cloud.Instance, error) {
	c.Tags = b.spelled(c.Tags)
	if b.launch != nil {
		return b.launch(ctx, c)
	}
	i, err := b.Provider.LaunchInstance(ctx, c)
	return b.changed(i), err
}

func (b *bad) TerminateInstance(ctx context.Context, id string) error {
	if b.terminate != nil {
		return b.terminate(ctx, id)
	}
	return b.Provider.TerminateInstance(ctx, id)
}

func (b *bad) GetInstanceState(ctx context.Context, id string) (cloud.InstanceState, error) {
	if b.state != nil {
		return b.state(ctx, id)
	}
	return b.Provider.GetInstanceState(ctx, id)
}

func (b *bad) GetInstance(ctx context.Context, id string) (cloud.Instance, error) {
	i, err := b.Provider.GetInstance(ctx, id)
	return b.changed(i), err
}

func (b *bad) ListInstances(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
	if b.list != nil {
		return b.list(ctx, tags)
	}
	return b.Provider.ListInstances(ctx, b.spelled(tags))
}

func (b *bad) UpdateInstanceTags(ctx context.Context, id string, tags map[string]string) error {
	return b.Provider.UpdateInstanceTags(ctx, id, b.spelled(tags))
}

// plant is a provider with a mistake, over a cloud that works.
func plant(change func(fake *cloudtest.Fake, b *bad)) cloudtest.Subject {
	fake := &cloudtest.Fake{}
	b := &bad{Provider: fake}
	change(fake, b)
	return subject(b)
}

func subject(p cloud.Provider) cloudtest.Subject {
	return cloudtest.Subject{
		Provider:  p,
		Config:    cloud.LaunchConfig{ImageID: "image", InstanceType: "m5.large"},
		Other:     cloud.LaunchConfig{ImageID: "image", InstanceType: "m5.xlarge"},
		UnknownID: "i-fake-999999",
	}
}

func TestMistakesOfProvidersAreFound(t *testing.T) {
	for name, planted := range map[string]struct {
		found   []string
		subject func() cloudtest.Subject
	}{
		"only the first page of a list": {[]string{pages}, func() cloudtest.Subject {
			return plant(func(f *cloudtest.Fake, b *bad) {
				b.list = func(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
					all, err := f.ListInstances(ctx, tags)
					return all[:min(len(all), 5)], err
				}
			})
		}},
		"a list with a machine of two pages twice": {[]string{pages}, func() cloudtest.Subject {
			return plant(func(f *cloudtest.Fake, b *bad) {
				b.list = func(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
					all, err := f.ListInstances(ctx, tags)
					if len(all) > 5 {
						all = slices.Insert(all, 5, all[4])
					}
					return all, err
				}
			})
		}},
		"a list that ignores one of the tags": {[]string{allTags}, func() cloudtest.Subject {
			return plant(func(f *cloudtest.Fake, b *bad) {
				b.list = func(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
					tags = maps.Clone(tags)
					delete(tags, "colour")
					return f.ListInstances(ctx, tags)
				}
			})
		}},
		"tags in lower case": {[]string{spelling}, func() cloudtest.Subject {
			return plant(func(_ *cloudtest.Fake, b *bad) { b.tags = respell(strings.ToLower) })
		}},
		"tags without slashes": {[]string{properties, spelling}, func() cloudtest.Subject {
			return plant(func(_ *cloudtest.Fake, b *bad) {
				b.tags = respell(func(s string) string { return strings.ReplaceAll(s, "/", "_") })
			})
		}},
		"tags that are cut": {[]string{spelling}, func() cloudtest.Subject {
			return plant(func(_ *cloudtest.Fake, b *bad) {
				b.tags = respell(func(s string) string { return s[:min(len(s), 80)] })
			})
		}},
		"a deleted machine is only hidden": {[]string{leaves}, func() cloudtest.Subject {
			return plant(func(f *cloudtest.Fake, b *bad) {
				hidden := map[string]bool{}
				b.terminate = func(ctx context.Context, id string) error {
					_, err := f.GetInstance(ctx, id)
					hidden[id] = err == nil
					return err
				}
				b.state = func(ctx context.Context, id string) (cloud.InstanceState, error) {
					if hidden[id] {
						return "", cloud.ErrNotFound
					}
					return f.GetInstanceState(ctx, id)
				}
			})
		}},
		"a machine that never ends": {[]string{ends, leaves, spent}, func() cloudtest.Subject {
			return plant(func(f *cloudtest.Fake, b *bad) {
				b.terminate = func(ctx context.Context, id string) error {
					_, err := f.GetInstance(ctx, id)
					return err
				}
			})
		}},
		"a forgotten token that creates a machine for each call": {[]string{spent}, func() cloudtest.Subject {
			return plant(func(f *cloudtest.Fake, b *bad) {
				f.Forgets = true
				first := map[string]string{}
				var mu sync.Mutex // launches come several at a time
				b.launch = func(ctx context.Context, c cloud.LaunchConfig) (cloud.Instance, error) {
					mu.Lock()
					defer mu.Unlock()
					token := c.Token
					if id := first[token]; id != "" {
						if _, err := f.GetInstance(ctx, id); err != nil {
							c.Token += rest()
						}
					}
					i, err := f.LaunchInstance(ctx, c)
					if first[token] == "" {
						first[token] = i.ID
					}
					return i, err
				}
			})
		}},
		"a token of a machine that is terminated creates another": {[]string{spent}, func() cloudtest.Subject {
			return plant(func(f *cloudtest.Fake, b *bad) {
				b.launch = func(ctx context.Context, c cloud.LaunchConfig) (cloud.Instance, error) {
					i, err := f.LaunchInstance(ctx, c)
					if i.State.Ending() {
						c.Token += rest()
						return f.LaunchInstance(ctx, c)
					}
					return i, err
				}
			})
		}},
		"tokens in the memory of the process": {[]string{shared}, func() cloudtest.Subject {
			fake := &cloudtest.Fake{}
			s := subject(remembers(fake))
			s.Second = remembers(fake)
			return s
		}},
		"a state of its own": {[]string{ends}, func() cloudtest.Subject {
			return plant(func(f *cloudtest.Fake, b *bad) {
				b.state = func(ctx context.Context, id string) (cloud.InstanceState, error) {
					state, err := f.GetInstanceState(ctx, id)
					return cloud.InstanceState(strings.ToUpper(string(state))), err
				}
			})
		}},
		"no zone where there are zones": {[]string{properties}, func() cloudtest.Subject {
			return plant(func(_ *cloudtest.Fake, b *bad) { b.noZone = true })
		}},
		"an unknown machine is terminated": {[]string{unknown}, func() cloudtest.Subject {
			return plant(func(f *cloudtest.Fake, b *bad) {
				b.terminate = func(ctx context.Context, id string) error {
					if err := f.TerminateInstance(ctx, id); !errors.Is(err, cloud.ErrNotFound) {
						return err
					}
					return nil
				}
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				found := cloudtest.Conform(t.Context(), planted.subject())
				for _, check := range planted.found {
					require.Contains(t, found, check)
				}
			})
		})
	}
}

// respell returns how a cloud keeps tags that it does not allow as they are.
func respell(text func(string) string) func(map[string]string) map[string]string {
	return func(tags map[string]string) map[string]string {
		kept := map[string]string{}
		for k, v := range tags {
			kept[text(k)] = text(v)
		}
		return kept
	}
}

// rest makes a token another one each time, also of two at once.
func rest() string { return rand.Text()[:8] }

// remembers is a provider of a cloud without tokens: it has them in memory.
func remembers(f *cloudtest.Fake) cloud.Provider {
	var mu sync.Mutex
	tokens := map[string]cloud.Instance{}
	return &bad{Provider: f, launch: func(ctx context.Context, c cloud.LaunchConfig) (cloud.Instance, error) {
		mu.Lock()
		defer mu.Unlock()
		if i, ok := tokens[c.Token]; ok {
			return i, nil
		}
		token := c.Token
		c.Token += rest()
		i, err := f.LaunchInstance(ctx, c)
		tokens[token] = i
		return i, err
	}}
}

func TestACloudWithoutTombstonesZonesAndAddressesConforms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := plant(func(f *cloudtest.Fake, b *bad) { f.Forgets, b.noZone = true, true })
		s.NoZone, s.NoAddress = true, true
		require.Empty(t, cloudtest.Conform(t.Context(), s))
	})
}

func TestAFailureNamesItsStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[string]bool{}
		for _, operation := range []string{
			"LaunchInstance", "TerminateInstance", "StartInstance", "StopInstance",
			"GetInstanceState", "GetInstance", "ListInstances", "UpdateInstanceTags",
		} {
			fake := &cloudtest.Fake{Fault: func(c cloudtest.Call) cloudtest.Fault {
				if c.Operation == operation {
					return cloudtest.Fault{Err: errors.New("refused")}
				}
				return cloudtest.Fault{}
			}}
			for check, err := range cloudtest.Conform(t.Context(), subject(&bad{Provider: fake})) {
				require.ErrorContains(t, err, operation, check)
				seen[operation] = true
			}
		}
		require.Len(t, seen, 8)
	})
}
