package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/smithy-go"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// profileTag marks the instance profiles that a Resolver has made. Others are
// never changed or deleted.
const profileTag = "trueup-instance-profile"

// InstanceProfile returns the instance profile of the class, empty if it has none.
// For a role it makes the profile ProfileName, and adds the role to it; a profile of
// that name that no Resolver made is [cloud.ErrNotOwned].
func (r *Resolver) InstanceProfile(ctx context.Context, class Class) (string, error) {
	if class.Role == "" {
		return class.InstanceProfile, nil
	}
	profile, err := r.profile(ctx, class)
	if err != nil {
		return "", fmt.Errorf("instance profile %s: %w", class.ProfileName, err)
	}
	role := class.Role[strings.LastIndex(class.Role, "/")+1:]
	for _, have := range profile.Roles {
		if aws.ToString(have.RoleName) == role {
			return class.ProfileName, nil
		}
		_, err := r.IAM.RemoveRoleFromInstanceProfile(
			ctx,
			&iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: &class.ProfileName, RoleName: have.RoleName},
		)
		if err != nil && !isNoSuchEntity(err) {
			return "", fmt.Errorf("instance profile %s: remove role %s: %w", class.ProfileName, aws.ToString(have.RoleName), err)
		}
	}
	_, err = r.IAM.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &class.ProfileName, RoleName: &role})
	if isNoSuchEntity(err) {
		err = fmt.Errorf("%w: %w", cloud.ErrNotFound, err)
	}
	if err != nil {
		return "", fmt.Errorf("instance profile %s: add role %s: %w", class.ProfileName, role, err)
	}
	return class.ProfileName, nil
}

// profile returns the class's own profile, and makes it if there is none.
func (r *Resolver) profile(ctx context.Context, class Class) (*types.InstanceProfile, error) {
	if r.IAM == nil {
		return nil, errors.New("aws: Resolver.IAM: is required for a class with a role")
	}
	got, err := r.IAM.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &class.ProfileName})
	switch {
	case err == nil && !owned(got.InstanceProfile):
		return nil, fmt.Errorf("it exists without the tag %s: %w", profileTag, cloud.ErrNotOwned)
	case err == nil:
		return got.InstanceProfile, nil
	case !isNoSuchEntity(err):
		return nil, err
	}
	made, err := r.IAM.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{
		InstanceProfileName: &class.ProfileName, Tags: []types.Tag{{Key: aws.String(profileTag), Value: aws.String("true")}},
	})
	if err != nil {
		return nil, err
	}
	return made.InstanceProfile, nil
}

// DeleteInstanceProfile deletes the profile that was made for the class's role.
// It ignores a profile that does not exist or that no Resolver made.
func (r *Resolver) DeleteInstanceProfile(ctx context.Context, class Class) error {
	if class.Role == "" {
		return nil
	}
	got, err := r.IAM.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &class.ProfileName})
	if isNoSuchEntity(err) || err == nil && !owned(got.InstanceProfile) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("instance profile %s: %w", class.ProfileName, err)
	}
	for _, role := range got.InstanceProfile.Roles {
		_, err := r.IAM.RemoveRoleFromInstanceProfile(
			ctx,
			&iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: &class.ProfileName, RoleName: role.RoleName},
		)
		if err != nil && !isNoSuchEntity(err) {
			return fmt.Errorf("instance profile %s: remove role %s: %w", class.ProfileName, aws.ToString(role.RoleName), err)
		}
	}
	_, err = r.IAM.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: &class.ProfileName})
	if err != nil && !isNoSuchEntity(err) {
		return fmt.Errorf("instance profile %s: %w", class.ProfileName, err)
	}
	return nil
}

func owned(p *types.InstanceProfile) bool {
	for _, t := range p.Tags {
		if aws.ToString(t.Key) == profileTag {
			return true
		}
	}
	return false
}

func isNoSuchEntity(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && api.ErrorCode() == "NoSuchEntity"
}

// invalidID reports whether EC2 refused an id, rather than the caller's permission.
func invalidID(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && strings.HasPrefix(api.ErrorCode(), "Invalid")
}
