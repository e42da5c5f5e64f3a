// Package chart draws.
package chart
