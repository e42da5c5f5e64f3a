// Package cloud decides which machines a pool needs.
package cloud
