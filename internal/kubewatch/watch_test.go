package kubewatch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
)

// server answers lists and watches as a test says, and keeps what it was asked.
type server struct {
	list  func(ctx context.Context) (*metav1.PartialObjectMetadataList, error)
	watch func() error
	hangs atomic.Bool // a watch is not answered

	mu      sync.Mutex
	lists   []metav1.ListOptions
	watches []metav1.ListOptions
	open    []*watch.FakeWatcher
}

// unstreamed is the client of a server that streams no lists.
type unstreamed struct{}

func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

func (s *server) List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	s.mu.Lock()
	s.lists = append(s.lists, options)
	list := s.list
	s.mu.Unlock()
	if list != nil {
		return list(ctx)
	}
	return &metav1.PartialObjectMetadataList{
		ListMeta: metav1.ListMeta{ResourceVersion: "10"},
		Items:    []metav1.PartialObjectMetadata{*object("a", "5")},
	}, nil
}

func (s *server) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, options)
	if s.watch != nil {
		if err := s.watch(); err != nil {
			return nil, err
		}
	}
	w := watch.NewFakeWithChanSize(100, false)
	s.open = append(s.open, w)
	return w, nil
}

func (s *server) last() *watch.FakeWatcher {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[len(s.open)-1]
}

func (s *server) asked() (lists, watches []metav1.ListOptions) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.watches
}

func object(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, ResourceVersion: version, Labels: map[string]string{"of": "p"}},
	}
}

func bookmark(version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
}

// failures keeps what a Watch reports as failed.
type failures struct {
	mu  sync.Mutex
	all []error
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, err)
}

// list returns them once every goroutine of the bubble waits.
func (f *failures) list() []error {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// names is a store of versions by the label "of".
func names() *kubewatch.Store[string, string] {
	return &kubewatch.Store[string, string]{Read: func(o metav1.Object) (string, string, bool) {
		return o.GetLabels()["of"], o.GetName() + o.GetResourceVersion(), o.GetLabels()["of"] != ""
	}}
}

// run starts the watch in a bubble, and ends it after do.
func run(t *testing.T, w *kubewatch.Watch, do func(t *testing.T, again chan<- struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		again := make(chan struct{}, 1)
		w.Again = again
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Start(ctx) }()
		synctest.Wait()
		do(t, again)
		cancel()
		require.NoError(t, <-done)
	})
}

func TestTheFirstListIsConsistentAndSelected(t *testing.T) {
	t.Parallel()
	s, store := &server{}, names()
	w := &kubewatch.Watch{
		Resource: kubewatch.Of(unstreamed{}, object("", ""), s), Sink: store, LabelSelector: "a=b", FieldSelector: "c=d",
	}
	run(t, w, func(t *testing.T, _ chan<- struct{}) { //nolint:thelper // the body of the test
		lists, watches := s.asked()
		require.Len(t, lists, 1)
		require.Empty(t, lists[0].ResourceVersion, "0 would allow any state")
		require.Equal(t, "10", watches[0].ResourceVersion)
		for _, options := range append(lists, watches...) {
			require.Equal(t, "a=b", options.LabelSelector)
			require.Equal(t, "c=d", options.FieldSelector)
		}
		require.Equal(t, []string{"a5"}, store.All())
	})
}

func TestASilentWatchIsResumedFromItsLastVersion(t *testing.T) {
	t.Parallel()
	s, store := &server{}, names()
	var failed failures
	proofs := 0
	w := &kubewatch.Watch{
		Resource: kubewatch.Of(unstreamed{}, object("", ""), s), Sink: store,
		Failed: failed.add, Alive: func() { proofs++ },
	}
	run(t, w, func(t *testing.T, _ chan<- struct{}) { //nolint:thelper // the body of the test
		require.Equal(t, 1, proofs, "the list; a watch that was opened proves nothing")
		for range 5 {
			time.Sleep(2 * time.Minute)
			s.last().Action(watch.Bookmark, bookmark("20"))
		}
		synctest.Wait()
		require.Equal(t, 6, proofs)
		require.True(t, store.Seen().Equal(time.Now()))
		time.Sleep(3*time.Minute + time.Second)
		lists, watches := s.asked()
		require.Len(t, lists, 1, "nothing is listed again")
		require.Equal(t, "20", watches[1].ResourceVersion)
		require.Equal(t, 6, proofs, "the new watch has not spoken")
		require.Equal(t, []error{nil, nil, kubewatch.ErrSilent, nil}, failed.list())
		s.last().Modify(object("a", "21"))
		synctest.Wait()
		require.Equal(t, []string{"a21"}, store.All())
	})
}

// TestASilentWatchIsListedAgainAtOnceIfThatIsAsked proves a sink within less than the minute
// between two bookmarks.
func TestASilentWatchIsListedAgainAtOnceIfThatIsAsked(t *testing.T) {
	t.Parallel()
	s, store := &server{}, names()
	w := &kubewatch.Watch{Resource: kubewatch.Of(unstreamed{}, object("", ""), s), Sink: store, Silence: 3 * time.Second, Relist: true}
	run(t, w, func(t *testing.T, _ chan<- struct{}) { //nolint:thelper // the body of the test
		for range 100 {
			time.Sleep(time.Second)
			synctest.Wait()
			require.LessOrEqual(t, time.Since(store.Seen()), 3*time.Second)
		}
		lists, watches := s.asked()
		require.Len(t, lists, 34)
		require.Len(t, watches, 34)
	})
}

func TestAListThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	s := &server{list: func(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	var failed failures
	w := &kubewatch.Watch{
		Resource: kubewatch.Of(unstreamed{}, object("", ""), s), Sink: names(), Silence: time.Second,
		Failed: failed.add,
	}
	run(t, w, func(t *testing.T, _ chan<- struct{}) { //nolint:thelper // the body of the test
		time.Sleep(59 * time.Second)
		synctest.Wait()
		require.Empty(t, failed.list(), "a list has a minute")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, []error{context.DeadlineExceeded}, failed.list())
		lists, _ := s.asked()
		require.Len(t, lists, 2)
	})
}

// TestAWatchThatIsNotAnsweredIsGivenUp has a proxy in between whose server hangs, and answers later requests.
func TestAWatchThatIsNotAnsweredIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, relist := range []bool{false, true} {
		s, store := &server{}, names()
		var failed failures
		w := &kubewatch.Watch{
			Resource: kubewatch.Of(unstreamed{}, object("", ""), s), Sink: store, Silence: 9 * time.Second, Relist: relist, Failed: failed.add,
		}
		run(t, w, func(t *testing.T, _ chan<- struct{}) { //nolint:thelper // the body of the test
			s.hangs.Store(true)
			time.Sleep(30 * time.Second) // the watch falls silent, and the next one hangs
			s.hangs.Store(false)
			time.Sleep(38 * time.Second)
			synctest.Wait()
			require.NotContains(t, fmt.Sprint(failed.list()), "not answered", "it has a minute")
			time.Sleep(5 * time.Second)
			require.Contains(t, fmt.Sprint(failed.list()), "the watch is not answered")
			s.last().Modify(object("a", "21"))
			synctest.Wait()
			require.Equal(t, []string{"a21"}, store.All())
		})
	}
}

func TestAnExpiredVersionIsNoFailure(t *testing.T) {
	t.Parallel()
	for _, expired := range []error{
		apierrors.NewResourceExpired("too old resource version"),
		apierrors.NewGone("too old resource version"), //nolint:staticcheck // the answer of old servers and of proxies
	} {
		s := &server{}
		var failed failures
		w := &kubewatch.Watch{
			Resource: kubewatch.Of(unstreamed{}, object("", ""), s), Sink: names(),
			Failed: failed.add,
		}
		run(t, w, func(t *testing.T, _ chan<- struct{}) { //nolint:thelper // the body of the test
			s.mu.Lock()
			s.watch = func() error { s.watch = nil; return expired }
			s.mu.Unlock()
			s.last().Stop()
			time.Sleep(20 * time.Second)
			lists, watches := s.asked()
			require.Greater(t, len(lists), 1)
			require.Len(t, watches, len(lists), "each list is watched on, once without success")
			for _, err := range failed.list() {
				require.NoError(t, err)
			}
		})
	}
}

func TestAStreamedListIsKeptInPartsAndReplacesAll(t *testing.T) {
	t.Parallel()
	s, store := &server{}, names()
	w := &kubewatch.Watch{Resource: kubewatch.Of(nil, object("", ""), s), Sink: store}
	run(t, w, func(t *testing.T, _ chan<- struct{}) { //nolint:thelper // the body of the test
		_, watches := s.asked()
		require.True(t, *watches[0].SendInitialEvents)
		s.last().Add(object("a", "5"))
		s.last().Add(object("b", "6"))
		synctest.Wait()
		require.False(t, store.Synced(), "the end of the list has not come")
		require.Zero(t, store.Len())
		end := bookmark("10")
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		s.last().Action(watch.Bookmark, end)
		synctest.Wait()
		require.True(t, store.Synced())
		require.ElementsMatch(t, []string{"a5", "b6"}, store.All())
		require.Empty(t, s.lists)
	})
}

// TestAServerThatStreamsNoListsIsListed has a server before Kubernetes 1.32: it refuses a watch
// that begins with a list, which is no failure.
func TestAServerThatStreamsNoListsIsListed(t *testing.T) {
	t.Parallel()
	s, store := &server{}, names()
	s.watch = func() error {
		if s.watches[len(s.watches)-1].SendInitialEvents != nil {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
		}
		return nil
	}
	var log bytes.Buffer
	w := &kubewatch.Watch{
		Resource: kubewatch.Of(nil, object("", ""), s), Sink: store, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Failed: func(err error) { require.NoError(t, err) },
	}
	run(t, w, func(t *testing.T, _ chan<- struct{}) { //nolint:thelper // the body of the test
		lists, watches := s.asked()
		require.Len(t, lists, 1)
		require.Len(t, watches, 2, "the first one was refused")
		require.ElementsMatch(t, []string{"a5"}, store.All())
		require.Empty(t, log.String())
	})
}

// TestEachObjectIsReducedOnceAndAsItComes has a streamed list: no object of it is kept whole
// until its end, and objects of one name in two namespaces are two.
func TestEachObjectIsReducedOnceAndAsItComes(t *testing.T) {
	t.Parallel()
	s, store, reads := &server{}, names(), 0
	read := store.Read
	store.Read = func(o metav1.Object) (string, string, bool) { reads++; return read(o) }
	w := &kubewatch.Watch{Resource: kubewatch.Of(nil, object("", ""), s), Sink: store}
	run(t, w, func(t *testing.T, _ chan<- struct{}) { //nolint:thelper // the body of the test
		other := object("a", "6")
		other.Namespace = "y"
		s.last().Add(object("a", "5"))
		s.last().Add(other)
		synctest.Wait()
		require.Equal(t, 2, reads, "before the end of the list")
		end := bookmark("10")
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		s.last().Action(watch.Bookmark, end)
		synctest.Wait()
		require.ElementsMatch(t, []string{"a5", "a6"}, store.All())
		require.Equal(t, 2, reads, "nor again at its end")
		s.last().Modify(object("a", "11"))
		synctest.Wait()
		require.ElementsMatch(t, []string{"a11", "a6"}, store.All())
		require.Equal(t, 3, reads)
	})
}

func TestANudgeEndsThePauseOfAWatchThatHasNotListed(t *testing.T) {
	t.Parallel()
	s := &server{list: func(context.Context) (*metav1.PartialObjectMetadataList, error) {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "widgets"}, "")
	}}
	store := names()
	w := &kubewatch.Watch{Resource: kubewatch.Of(unstreamed{}, object("", ""), s), Sink: store}
	run(t, w, func(t *testing.T, again chan<- struct{}) { //nolint:thelper // the body of the test
		time.Sleep(time.Hour)
		before, _ := s.asked()
		require.InDelta(t, 720, len(before), 60, "every five seconds: it may be served at any time")
		s.mu.Lock()
		s.list = func(context.Context) (*metav1.PartialObjectMetadataList, error) {
			return nil, apierrors.NewUnauthorized("expired")
		}
		s.mu.Unlock()
		time.Sleep(time.Hour)
		later, _ := s.asked()
		require.InDelta(t, 120, len(later)-len(before), 30, "every half minute")
		s.mu.Lock()
		s.list = nil
		s.mu.Unlock()
		again <- struct{}{}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.True(t, store.Synced())
		listed, _ := s.asked()
		again <- struct{}{}
		time.Sleep(time.Second)
		now, _ := s.asked()
		require.Len(t, now, len(listed), "it lists once only")
	})
}

func TestANudgeGivesUpAFirstListThatHangs(t *testing.T) {
	t.Parallel()
	s, store := &server{}, names()
	s.list = func(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
		s.mu.Lock()
		s.list = nil
		s.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var failed failures
	w := &kubewatch.Watch{
		Resource: kubewatch.Of(unstreamed{}, object("", ""), s), Sink: store, Failed: failed.add,
	}
	run(t, w, func(t *testing.T, again chan<- struct{}) { //nolint:thelper // the body of the test
		require.False(t, store.Synced())
		again <- struct{}{}
		synctest.Wait()
		require.True(t, store.Synced(), "at once")
		require.Equal(t, []error{nil, nil}, failed.list(), "what was given up is no failure")
	})
}

func TestALastingFailureIsLoggedEveryTenMinutesAndItsEndOnce(t *testing.T) {
	t.Parallel()
	s := &server{list: func(context.Context) (*metav1.PartialObjectMetadataList, error) {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	}}
	var log bytes.Buffer
	w := &kubewatch.Watch{
		Name: "Pod", Resource: kubewatch.Of(unstreamed{}, object("", ""), s), Sink: names(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}
	run(t, w, func(t *testing.T, _ chan<- struct{}) { //nolint:thelper // the body of the test
		time.Sleep(35 * time.Minute)
		synctest.Wait()
		require.Equal(t, 4, strings.Count(log.String(), `level=WARN msg="watch failed" kind=Pod error="pods is forbidden: no"`), log.String())
		s.mu.Lock()
		s.list = nil
		s.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), `level=INFO msg="watch recovered" kind=Pod after=35m`), log.String())
		require.Equal(t, 5, strings.Count(log.String(), "\n"), log.String())
	})
}

func TestEachReasonOfAFailureIsLoggedAndEachOutageHasItsOwnBeginning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		var o kubewatch.Outage
		lines := func() []string {
			defer log.Reset()
			all := strings.Split(strings.TrimSpace(log.String()), "\n")
			for i, line := range all {
				_, all[i], _ = strings.Cut(line, " ")
			}
			return all
		}
		o.Log(logger, "Pod", apierrors.NewUnauthorized("who"))
		o.Log(logger, "Pod", apierrors.NewServiceUnavailable("busy"))
		o.Log(logger, "Pod", apierrors.NewUnauthorized("who"))
		require.Equal(t, []string{
			`level=WARN msg="watch failed" kind=Pod error=who`, `level=WARN msg="watch failed" kind=Pod error=busy`,
		}, lines())
		time.Sleep(time.Minute)
		o.Log(logger, "Pod", nil)
		require.Equal(t, []string{`level=INFO msg="watch recovered" kind=Pod after=1m0s`}, lines())
		time.Sleep(time.Hour)
		o.Log(logger, "Pod", apierrors.NewUnauthorized("who"))
		time.Sleep(2 * time.Minute)
		o.Log(logger, "Pod", nil)
		require.Equal(t, []string{
			`level=WARN msg="watch failed" kind=Pod error=who`, `level=INFO msg="watch recovered" kind=Pod after=2m0s`,
		}, lines())
	})
}

func TestAFailureOfAWatchIsReportedUntilTheServerAnswersAgain(t *testing.T) {
	t.Parallel()
	for _, refused := range []error{
		apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no")),
		apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil), // of a watch that is no list
	} {
		s := &server{}
		var failed failures
		w := &kubewatch.Watch{
			Resource: kubewatch.Of(unstreamed{}, object("", ""), s), Sink: names(),
			Failed: failed.add,
		}
		run(t, w, func(t *testing.T, _ chan<- struct{}) { //nolint:thelper // the body of the test
			require.Equal(t, []error{nil, nil}, failed.list(), "the list and its watch")
			s.mu.Lock()
			s.watch = func() error { s.watch = nil; return refused }
			s.mu.Unlock()
			s.last().Stop()
			time.Sleep(20 * time.Second)
			synctest.Wait()
			require.Equal(t, []error{nil, nil, nil, refused, nil, nil}, failed.list(), "the second list, and the third with its watch")
		})
	}
}

// TestARefusedStreamEndsWithItsContext has a server that is too busy for a streamed list: a
// reflector that gets this error itself waits for up to a minute, whatever its context says.
func TestARefusedStreamEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := func() error { return apierrors.NewTooManyRequests("later", 1) }
		s := &server{watch: busy, list: func(context.Context) (*metav1.PartialObjectMetadataList, error) { return nil, busy() }}
		w := &kubewatch.Watch{Resource: kubewatch.Of(nil, object("", ""), s), Sink: names()}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Start(ctx) }()
		synctest.Wait()
		_, watches := s.asked()
		require.NotEmpty(t, watches)
		ended := time.Now()
		cancel()
		require.NoError(t, <-done)
		require.Zero(t, time.Since(ended))
	})
}

func TestTheFirstFailureAfterALongTimeHasTheFirstDelay(t *testing.T) {
	t.Parallel()
	s := &server{list: func(context.Context) (*metav1.PartialObjectMetadataList, error) { return nil, errors.New("no") }}
	store := names()
	w := &kubewatch.Watch{Resource: kubewatch.Of(unstreamed{}, object("", ""), s), Sink: store}
	run(t, w, func(t *testing.T, _ chan<- struct{}) { //nolint:thelper // the body of the test
		time.Sleep(10 * time.Minute)
		s.mu.Lock()
		s.list = nil
		s.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.True(t, store.Synced())
		before, _ := s.asked()
		s.mu.Lock()
		s.watch = func() error { s.watch = nil; return apierrors.NewResourceExpired("too old resource version") }
		s.mu.Unlock()
		s.last().Stop()
		time.Sleep(5 * time.Second)
		after, _ := s.asked()
		require.Greater(t, len(after), len(before), "it is not the delay of the ninth attempt")
	})
}

// TestStartWaitsForTheListThatItHasSent has a server that does not notice that a request
// was given up.
func TestStartWaitsForTheListThatItHasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answered := false
		s := &server{list: func(context.Context) (*metav1.PartialObjectMetadataList, error) {
			time.Sleep(10 * time.Second)
			answered = true
			return nil, errors.New("late")
		}}
		var failed failures
		w := &kubewatch.Watch{
			Resource: kubewatch.Of(unstreamed{}, object("", ""), s), Sink: names(), Failed: failed.add,
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, w.Start(ctx))
		require.True(t, answered)
		require.Empty(t, failed.list(), "it was given up")
	})
}

func TestAStoreTellsWhichKeysHaveChanged(t *testing.T) {
	t.Parallel()
	store := names()
	store.Same = func(a, b string) bool { return a == b }
	var changed []string
	store.Changed = func(key string) { changed = append(changed, key) }
	took := func() []string { defer func() { changed = nil }(); return changed }
	keep := func(name, version, of string) any {
		o := object(name, version)
		o.Labels["of"] = of
		kept, err := store.Reduce(o)
		require.NoError(t, err)
		return kept
	}
	require.False(t, store.Synced())
	require.NoError(t, store.Replace([]any{keep("a", "1", "p"), keep("b", "1", "p"), keep("c", "1", "q"), keep("d", "1", "")}, "1"))
	require.ElementsMatch(t, []string{"p", "q"}, took())
	require.True(t, store.Synced())
	require.Equal(t, 3, store.Len(), "d has no key")
	require.ElementsMatch(t, []string{"a1", "b1"}, store.Of("p"))

	require.NoError(t, store.Put(keep("a", "1", "p")))
	require.Empty(t, took(), "the same")
	require.NoError(t, store.Put(keep("a", "2", "p")))
	require.Equal(t, []string{"p"}, took())
	require.NoError(t, store.Put(keep("a", "2", "q")))
	require.ElementsMatch(t, []string{"p", "q"}, took(), "it moved")
	require.NoError(t, store.Put(keep("a", "2", "")))
	require.Equal(t, []string{"q"}, took(), "it has no key any more")
	require.NoError(t, store.Drop(object("c", "9")))
	require.Equal(t, []string{"q"}, took())
	require.NoError(t, store.Drop(object("c", "9")))
	require.Empty(t, took(), "it was not there")
	require.Equal(t, []string{"p"}, store.Keys())

	require.NoError(t, store.Replace([]any{keep("b", "1", "p")}, "9"))
	require.Equal(t, []string{"p"}, took(), "after a list also what is the same")
	require.NoError(t, store.Replace(nil, "9"))
	require.Equal(t, []string{"p"}, took())
	require.Empty(t, store.Keys())
	require.ErrorContains(t, store.Put(7), "delivered a int; want an object")
}

func TestAValueIsTheNewestOneAlsoWhenItIsTheSame(t *testing.T) {
	t.Parallel()
	store := names()
	store.Same = func(string, string) bool { return true }
	changes := 0
	store.Changed = func(string) { changes++ }
	for _, version := range []string{"1", "2"} {
		kept, err := store.Reduce(object("a", version))
		require.NoError(t, err)
		require.NoError(t, store.Put(kept))
		require.Equal(t, []string{"a" + version}, store.All())
	}
	require.Equal(t, 1, changes, "it is new only once")
}
