// Package openapi serves the reference of the control plane's API: an OpenAPI document
// that is generated from the routes, their Go types and the comments of these, with
// examples that a server has answered.
package openapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"net/http"
	"time"
)

// Path is where the document is served, to everybody: it has no secret.
const Path = "/openapi.json"

// Document is the OpenAPI 3.1 document. It must not be changed.
//
//go:embed openapi.json
var Document []byte

// Handler serves the document.
func Handler() http.Handler {
	sum := sha256.Sum256(Document)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this path takes GET, HEAD, not "+r.Method, http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("ETag", tag)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(Document))
	})
}
