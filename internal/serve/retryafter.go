package serve

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// RetryAfter sets the header of that name: whole seconds, at least 1.
func RetryAfter(header http.Header, wait time.Duration) {
	header.Set("Retry-After", strconv.FormatInt(max(1, int64(math.Ceil(wait.Seconds()))), 10))
}
