package operator_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// TestAnEditOfThePasswordCountsWheneverItComes has a person who writes the password of the
// database between the operator's read of the Secret and its write, and just before the read,
// while the watch of Secrets is late: the Secret keeps it, and the role gets it.
func TestAnEditOfThePasswordCountsWheneverItComes(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes and a PostgreSQL of its own")
	}
	t.Parallel()
	c := newCell(t)
	b := c.bench(t, "edited")
	people, err := kubernetes.NewForConfig(c.cluster.Config)
	require.NoError(t, err)
	edit := func(name, password string) {
		_, err := people.CoreV1().Secrets(b.name).Patch(t.Context(), name+"-db", types.MergePatchType,
			fmt.Appendf(nil, `{"stringData":{"DB_PASSWORD":%q}}`, password), metav1.PatchOptions{FieldManager: "a-person"})
		require.NoError(t, err)
	}
	var hook atomic.Pointer[func(applytest.Request)]
	r := c.run(t, &life{before: func(request applytest.Request) {
		if do := hook.Load(); do != nil {
			(*do)(request)
		}
	}}, 0)
	// once does something before the first request of a verb for the Secret of an app.
	once := func(verb, name string, do func()) (done *atomic.Bool) {
		done = new(atomic.Bool)
		f := func(request applytest.Request) {
			if request.Verb == verb && request.Resource == "secrets" && request.Name == name+"-db" && done.CompareAndSwap(false, true) {
				do()
			}
		}
		hook.Store(&f)
		return done
	}
	logsIn := func(name, password string) {
		b.eventually("login works with "+password, func() bool {
			conn, err := b.login(name)
			return err == nil && conn.Close(b.Context()) == nil && b.secret(name+"-db", "DB_PASSWORD") == password
		})
	}

	b.app("between", withDatabase)
	b.phase("between", "Running")
	b.rests(r)
	done := once("patch", "between", func() { edit("between", "second") })
	edit("between", "first") // for which the operator writes DATABASE_URL
	logsIn("between", "second")
	require.True(t, done.Load())

	b.app("late", withDatabase)
	b.phase("late", "Running")
	b.rests(r)
	done = once("get", "late", func() {
		r.net.Freeze()
		edit("late", "third")
	})
	b.in("annotate", "app", "late", "example.com/note=1") // a pass, for another reason
	b.eventually("the Secret follows", func() bool { return done.Load() && strings.Contains(b.secret("late-db", "DATABASE_URL"), "third") })
	r.net.Thaw()
	logsIn("late", "third")
}
