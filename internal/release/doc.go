// Command release builds what people run: programs for each platform, container images
// without a container engine, archives, checksums, software bills of materials and release
// notes.
//
//	release images  --out DIR [--push REPOSITORY]
//	release archive --out DIR --version v0.1.0
//
// Everything depends on the commit and the version alone: two runs on two machines make the
// same bytes. Programs are built by the go command of this module's parent, images have no
// base but a bundle of certificate authorities, which comes from a Go module, and a user
// that is not root.
package main
