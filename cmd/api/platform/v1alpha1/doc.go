// Package v1alpha1 is the API of the application operator: an [Application] is a web
// app with its database schema, buckets and login realm, and a [PreviewEnvironment] is a
// short-lived copy of one for a pull request. The custom resource definitions in the
// package crds are generated from it.
//
// The package has types only. It imports nothing of the operator, so that a program can
// make these objects without it.
//
// +groupName=platform.internal
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of all kinds.
const Group = "platform.internal"

// GroupVersion returns the group and version of all kinds.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: "v1alpha1"}
}

// Finalizer is on an object of either kind until all that was made for it is gone.
const Finalizer = Group + "/cleanup"

// The labels of everything that is made for an Application.
const (
	LabelApp         = Group + "/app"
	LabelEnvironment = Group + "/environment"
	// LabelOwner is the UID of the object that it was made for.
	LabelOwner = Group + "/owner-uid"
)

// The annotations.
const (
	// AnnotationRotate, with another value than before, makes a new database password.
	AnnotationRotate = Group + "/rotate"
	// AnnotationMigrate, with another value than before, runs the migrations of an image again.
	AnnotationMigrate = Group + "/migrate"
	// AnnotationRepository and AnnotationBranch record where an app comes from.
	AnnotationRepository = Group + "/repository"
	AnnotationBranch     = Group + "/branch"
	// AnnotationChecksum is a digest of the Secret and ConfigMaps that a pod reads: it
	// rolls the pods when they change.
	AnnotationChecksum = Group + "/config-checksum"
)

// Name is the name of an Application, or of something that is named after one.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="must be a-z, 0-9 and -, begin with a letter and not end with -"
type Name string

// Image is the reference of a container image.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._:/@-]*$')",message="must be an image such as registry.example.com/team/app:1.2.3"
type Image string

// Branch is the name of a branch.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=255
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._/@#+-]+$')",message="must be the name of a branch: letters, digits and ._/@#+-"
type Branch string

// DeletionPolicy says what becomes of something outside the cluster when it is no longer
// wanted.
//
// +kubebuilder:validation:Enum=Delete;Retain
type DeletionPolicy string

// The deletion policies.
const (
	// Delete removes it with its data.
	Delete DeletionPolicy = "Delete"
	// Retain leaves it with a marker, by which the Application of the same name in the same
	// namespace finds it again.
	Retain DeletionPolicy = "Retain"
)

// Environment is what an Application is for. It is part of all names outside of the
// cluster.
//
// +kubebuilder:validation:Enum=production;staging;uat;preview
type Environment string

// The environments.
const (
	Production Environment = "production"
	Staging    Environment = "staging"
	UAT        Environment = "uat"
	Preview    Environment = "preview"
)
