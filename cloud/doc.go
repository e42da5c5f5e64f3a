// Package cloud keeps a pool of machines exactly as large as it is wanted: never
// a duplicate, never a leak, and no good machine terminated.
package cloud
