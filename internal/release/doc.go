// Command release builds what people run and what they import: programs for each platform,
// container images without a container engine, archives, charts and bases, checksums with a
// signature, provenance, software bills of materials, release notes, and the tags of the
// modules. docs/releasing.md is the order of steps.
//
//	release cut     --out DIR --version v0.1.0 [--key FILE]   what follows, from one commit
//	release tag     --version v0.1.0                          the tags of all modules
//	release archive --out DIR --version v0.1.0 [--key FILE]   the files
//	release images  --out DIR [--push REPOSITORY]             the images
//	release push    --out DIR --version v0.1.0 --push REPOSITORY   the images of a cut
//
// A tag is on a commit after the one that is checked out, and on no branch: there the
// modules require each other at the version, with the checksums of what the go command
// downloads. Nothing but --push leaves the machine.
//
// Everything depends on the commit, the version and the key alone: two runs on two machines
// make the same bytes. Programs are built by the go command of this module's parent, images have no
// base but a bundle of certificate authorities, which comes from a Go module, and a user
// that is not root.
//
// GoReleaser would build the archives, but not the tags of modules that require each other,
// nor images without a container engine from the same files. It leaves bills of materials
// and signatures to programs that must be installed beside it, and provenance to a service.
// So it would replace the smallest part of this, for more than a thousand lines in a go.sum.
package main
