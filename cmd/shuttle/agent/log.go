package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// maxNames bounds the objects that one line of the log names.
const maxNames = 3

// log writes what a pass has come to: one line for each object that was written, and one for all that failed for
// the same cause, unless as many were logged since the cause began: in an outage each object fails at each try. It takes
// how many failures were logged, by cause, and returns the same for the next pass.
func (c *converger) log(ctx context.Context, before map[string]int, results []apply.Result) (logged map[string]int) {
	type failure struct {
		cause string
		first apply.Result
		names []string
		count int
	}
	var order []*failure
	byCause := map[string]*failure{}
	for _, r := range results {
		if r.Err == nil {
			c.logger.InfoContext(ctx, "object converged", slog.String("object", r.ID.String()), slog.String("action", string(r.Action)))
			continue
		}
		key := string(r.Action) + " " + causeOf(r)
		f := byCause[key]
		if f == nil {
			f = &failure{cause: key, first: r}
			byCause[key] = f
			order = append(order, f)
		}
		if f.count++; len(f.names) < maxNames {
			f.names = append(f.names, r.ID.String())
		}
	}
	logged = make(map[string]int, len(order))
	for _, f := range order {
		logged[f.cause] = max(f.count, before[f.cause])
		if f.count <= before[f.cause] {
			continue
		}
		attrs := []any{slog.String("action", string(f.first.Action)), slog.Any("error", f.first.Err)}
		if f.count == 1 {
			c.logger.WarnContext(ctx, "object not converged", append(attrs, slog.String("object", f.names[0]))...)
			continue
		}
		c.logger.WarnContext(ctx, "objects not converged", append(attrs, slog.Int("count", f.count),
			slog.String("first", strings.Join(f.names, ", ")))...)
	}
	return logged
}

// causeOf is the text of an error without what names the object: two objects that fail for the same cause have the
// same.
func causeOf(r apply.Result) string {
	if request, ok := errors.AsType[*url.Error](r.Err); ok {
		return request.Err.Error()
	}
	text := string(apierrors.ReasonForError(r.Err)) + " " + r.Err.Error()
	names := []string{r.ID.String(), `"` + r.ID.Name + `"`, `"` + r.ID.Namespace + `"`, strings.ToLower(r.ID.Kind)}
	for _, name := range names {
		text = strings.ReplaceAll(text, name, "")
	}
	return text
}
