// Package simtest simulates the world around a controller.
package simtest
