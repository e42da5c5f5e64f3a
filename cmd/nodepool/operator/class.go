package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// How often a class is resolved again.
const (
	resolveAgain = 10 * time.Minute
	resolveRetry = 30 * time.Second
)

// needed are the conditions without which no machine is launched from a class.
//
//nolint:gochecknoglobals // constant
var needed = []string{
	v1alpha1.ConditionValid,
	v1alpha1.ConditionAMIReady,
	v1alpha1.ConditionSubnetsReady,
	v1alpha1.ConditionSecurityGroupsReady,
	v1alpha1.ConditionInstanceProfileReady,
}

// unready returns why no machine can be launched from a class.
func unready(class *v1alpha1.AWSNodeClass) string {
	if class.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	if class.Status.ObservedGeneration != class.Generation {
		return "its newest version is not resolved yet"
	}
	for _, kind := range needed {
		switch c := meta.FindStatusCondition(class.Status.Conditions, kind); {
		case c == nil:
			return kind + " is not known yet"
		case c.Status != metav1.ConditionTrue:
			return kind + ": " + c.Message
		}
	}
	return ""
}

// reconcileClass resolves the selectors of a class, and keeps it while pools use it.
func (o *operator) reconcileClass(ctx context.Context, key types.NamespacedName, c *v1alpha1.AWSNodeClass) (reconcile.Result, error) {
	if o.dry {
		return reconcile.Result{}, nil
	}
	if c == nil {
		o.wakeUsers(key.Name)
		return reconcile.Result{}, nil
	}
	// The pools are listed after everything else. Until then a class seems to have no users:
	// it would lose its finalizers, and its status its count.
	listed, _ := o.pools.Synced()
	if c.DeletionTimestamp != nil && !listed {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	users := o.users(key.Name)
	count := func(c *v1alpha1.AWSNodeClass) {
		if listed {
			countUsers(c, len(users))
		}
	}
	again := func() reconcile.Result {
		if !listed {
			return reconcile.Result{RequeueAfter: time.Second}
		}
		return reconcile.Result{RequeueAfter: o.resolvedFor(c)}
	}
	alive, result, err := o.keepClass.Finalize(ctx, c, func(context.Context) (bool, error) {
		return len(users) == 0, nil
	})
	if err != nil {
		return result, err
	}
	if !alive && len(users) == 0 {
		_, result, err = o.keepProfile.Finalize(ctx, c, func(ctx context.Context) (bool, error) { return o.dropProfile(ctx, c) })
		return result, err
	}
	if alive && c.Spec.Role != "" {
		if _, _, err := o.keepProfile.Finalize(ctx, c, nil); err != nil {
			return reconcile.Result{}, err
		}
	}
	if o.resolvedFor(c) > 0 {
		// A pool has come or gone.
		err := o.classStatus.Update(ctx, c, count)
		return again(), err
	}
	before := unready(c)
	r := o.resolve(ctx, c)
	if err := o.classStatus.Update(ctx, c, func(c *v1alpha1.AWSNodeClass) { r.fill(c); count(c) }); err != nil {
		return reconcile.Result{}, err
	}
	if before != unready(c) || r.changed {
		o.wakeUsers(key.Name)
	}
	if len(r.errs) > 0 {
		if before != unready(c) {
			o.events.class(c, kube.EventWarning, "ResolutionFailed", unready(c))
		}
		o.resolvedUntil(c, spread(resolveRetry, c.UID))
		return again(), nil
	}
	o.resolvedUntil(c, spread(resolveAgain, c.UID))
	return again(), nil
}

// resolved is a version of a class that was resolved.
type resolved struct {
	uid        types.UID
	generation int64
}

// resolvedFor returns how long the resolution of this version of a class stays valid.
func (o *operator) resolvedFor(c *v1alpha1.AWSNodeClass) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.resolved[resolved{c.UID, c.Generation}].Sub(o.now())
}

func (o *operator) resolvedUntil(c *v1alpha1.AWSNodeClass, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.resolved, func(r resolved, _ time.Time) bool { return r.uid == c.UID })
	o.resolved[resolved{c.UID, c.Generation}] = o.now().Add(d)
}

// resolution is a class with ids, and what could not be found.
type resolution struct {
	aws.Resolved
	errs    map[string]error // by condition
	changed bool
}

// resolve asks the cloud for what a class selects. The parts are independent: one that
// fails keeps the ids that it had.
func (o *operator) resolve(ctx context.Context, c *v1alpha1.AWSNodeClass) *resolution {
	r := &resolution{errs: map[string]error{}}
	class := o.awsClass(c)
	if c.Spec.AMISelector == nil && class.KubernetesVersion == "" {
		version, err := o.minorVersion(ctx)
		if err != nil {
			o.events.class(c, kube.EventWarning, "VersionDetectionFailed", err.Error())
			r.errs[v1alpha1.ConditionAMIReady] = err
		}
		class.KubernetesVersion = version
	}
	if err := class.Validate(); err != nil && r.errs[v1alpha1.ConditionAMIReady] == nil {
		r.errs[v1alpha1.ConditionValid] = err
		return r
	}
	region, err := o.clouds.region(ctx, cmp.Or(c.Spec.Region, o.clouds.home()))
	if err != nil {
		r.errs[v1alpha1.ConditionValid] = err
		return r
	}
	note := func(condition string, err error) {
		if err != nil && r.errs[condition] == nil {
			r.errs[condition] = err
		}
	}
	if r.errs[v1alpha1.ConditionAMIReady] == nil {
		r.ImageID, r.ImageName, err = region.Resolver.Image(ctx, class)
		note(v1alpha1.ConditionAMIReady, err)
	}
	r.Subnets, err = region.Resolver.Subnets(ctx, class)
	if err == nil && len(r.Subnets) == 0 {
		err = fmt.Errorf("no subnet fits subnetSelector: %w", cloud.ErrNotFound)
	}
	note(v1alpha1.ConditionSubnetsReady, err)
	r.SecurityGroupIDs, err = region.Resolver.SecurityGroups(ctx, class)
	note(v1alpha1.ConditionSecurityGroupsReady, err)
	r.InstanceProfile, err = region.Resolver.InstanceProfile(ctx, class)
	note(v1alpha1.ConditionInstanceProfileReady, err)
	return r
}

// awsClass is the class as package aws has it.
func (o *operator) awsClass(c *v1alpha1.AWSNodeClass) aws.Class {
	s := c.Spec
	class := aws.Class{
		Bootstrap: aws.Bootstrap(s.BootstrapTemplate), Architecture: s.Architecture, SubnetIDs: s.SubnetIDs, SubnetSelector: s.SubnetSelector,
		SecurityGroupIDs: s.SecurityGroupIDs, SecurityGroupSelector: s.SecurityGroupSelector, InstanceProfile: s.IAMInstanceProfile, Role: s.Role,
	}
	if s.Role != "" {
		class.ProfileName = "stratos-" + o.config.ClusterName + "-" + c.Name
	}
	if s.AMISelector != nil {
		class.ImageID = s.AMISelector.ID
		class.Image = &aws.ImageSelector{Tags: s.AMISelector.Tags, Name: s.AMISelector.Name, Owner: s.AMISelector.Owner}
	}
	return class
}

// fill sets the status to the ids found. Fields that could not be resolved keep their ids.
func (r *resolution) fill(c *v1alpha1.AWSNodeClass) {
	before := c.Status
	ok := func(condition string) bool { return r.errs[condition] == nil && r.errs[v1alpha1.ConditionValid] == nil }
	if ok(v1alpha1.ConditionAMIReady) {
		c.Status.ResolvedAMI = r.ImageID
	}
	if ok(v1alpha1.ConditionSubnetsReady) {
		c.Status.ResolvedSubnets = nil
		for _, s := range r.Subnets {
			c.Status.ResolvedSubnets = append(c.Status.ResolvedSubnets, v1alpha1.ResolvedSubnet{ID: s.ID, Zone: s.Zone})
		}
	}
	if ok(v1alpha1.ConditionSecurityGroupsReady) {
		c.Status.ResolvedSecurityGroups = slices.Clone(r.SecurityGroupIDs)
	}
	if ok(v1alpha1.ConditionInstanceProfileReady) {
		c.Status.ResolvedInstanceProfile = r.InstanceProfile
	}
	r.changed = before.ResolvedAMI != c.Status.ResolvedAMI || before.ResolvedInstanceProfile != c.Status.ResolvedInstanceProfile ||
		!slices.Equal(
			before.ResolvedSubnets,
			c.Status.ResolvedSubnets,
		) || !slices.Equal(before.ResolvedSecurityGroups, c.Status.ResolvedSecurityGroups)
	for _, kind := range needed {
		found := condition(kind, true, "Resolved", r.message(kind))
		err := cmp.Or(r.errs[kind], r.errs[v1alpha1.ConditionValid])
		if was := meta.FindStatusCondition(
			c.Status.Conditions,
			kind,
		); err != nil && passingError(err) && was != nil && was.Status == metav1.ConditionTrue &&
			was.ObservedGeneration == c.Generation {
			continue // what was found is good until the cloud says otherwise
		}
		if err != nil {
			found = condition(kind, false, reasonOf(err), err.Error())
		}
		meta.SetStatusCondition(&c.Status.Conditions, found)
	}
}

// countUsers sets how many pools use a class.
func countUsers(c *v1alpha1.AWSNodeClass, users int) {
	c.Status.NodePoolCount = int32(users) //nolint:gosec // it is not that many
	inUse := condition(v1alpha1.ConditionInUse, false, "NotUsed", "no pool uses it")
	switch {
	case users > 0 && c.DeletionTimestamp != nil:
		inUse = condition(v1alpha1.ConditionInUse, true, "WaitsForPools", fmt.Sprintf(
			"it is being deleted, and stays until the %d pools that use it are deleted or use another: they launch no machine meanwhile", users,
		))
	case users > 0:
		inUse = condition(v1alpha1.ConditionInUse, true, "Used", fmt.Sprintf("%d pools use it", users))
	}
	meta.SetStatusCondition(&c.Status.Conditions, inUse)
}

// passingError reports whether an error says nothing about the class: the cloud may answer
// the next time.
func passingError(err error) bool {
	for _, lasting := range []error{cloud.ErrNotFound, cloud.ErrNotOwned, cloud.ErrRejected} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	return true
}

func (r *resolution) message(kind string) string {
	switch kind {
	case v1alpha1.ConditionAMIReady:
		return cmp.Or(r.ImageName, r.ImageID)
	case v1alpha1.ConditionSubnetsReady:
		return fmt.Sprintf("%d subnets", len(r.Subnets))
	case v1alpha1.ConditionSecurityGroupsReady:
		return fmt.Sprintf("%d security groups", len(r.SecurityGroupIDs))
	case v1alpha1.ConditionInstanceProfileReady:
		return cmp.Or(r.InstanceProfile, "none")
	default:
		return "every field is good"
	}
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, cloud.ErrNotFound):
		return "NotFound"
	case errors.Is(err, cloud.ErrThrottled):
		return "Throttled"
	case errors.Is(err, cloud.ErrNotOwned):
		return "NotOwned"
	case errors.Is(err, cloud.ErrRejected):
		return "Rejected"
	default:
		return "ResolutionFailed"
	}
}

// dropProfile deletes the instance profile that was made for a role.
func (o *operator) dropProfile(ctx context.Context, c *v1alpha1.AWSNodeClass) (bool, error) {
	if c.Spec.Role == "" {
		return true, nil
	}
	region, err := o.clouds.region(ctx, cmp.Or(c.Spec.Region, o.clouds.home()))
	if err != nil {
		return false, err
	}
	err = region.Resolver.DeleteInstanceProfile(ctx, o.awsClass(c))
	return err == nil, err
}

// users returns the pools that use a class, those that are being deleted included.
func (o *operator) users(class string) []types.NamespacedName {
	return o.pools.Users(classReference(class))
}

func (o *operator) absent(class types.NamespacedName) bool {
	_, err := o.classOf.Get(class)
	return errors.Is(err, kube.ErrAbsent)
}

func (o *operator) wakeUsers(class string) { o.pools.Add(o.users(class)...) }

// minorVersion returns the minor version of the cluster, such as 1.34.
func (o *operator) minorVersion(ctx context.Context) (string, error) {
	info, err := o.version(ctx)
	if err != nil {
		return "", fmt.Errorf("version of the cluster: %w", err)
	}
	minor := strings.TrimRight(info.Minor, "+")
	if info.Major == "" || minor == "" {
		return "", fmt.Errorf("version of the cluster: is %q.%q, must be numbers", info.Major, info.Minor)
	}
	return info.Major + "." + minor, nil
}
