//go:build modules

package main

// Modules that are used for their files, not their code: the Gateway API's
// CustomResourceDefinitions.
import _ "sigs.k8s.io/gateway-api/apis/v1"
