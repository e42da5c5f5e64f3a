package simtest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// The disturbances of a world, in addition to those of applytest. [Habits] says what
// each of them does and where it was seen.
const (
	Touch           applytest.Disturbance = "touch the object of"
	LabelObject     applytest.Disturbance = "label the object of"
	AddField        applytest.Disturbance = "add a field of another to the object of"
	DeleteDependent applytest.Disturbance = "delete the dependent of"
	LoseRights      applytest.Disturbance = "take the right for"
	ExpireToken     applytest.Disturbance = "expire the token at"
	StopServer      applytest.Disturbance = "stop the server at"
	ProxyPage       applytest.Disturbance = "answer as a proxy to"
	ProxyRefusal    applytest.Disturbance = "refuse as a proxy"
	LoginPage       applytest.Disturbance = "show a login page to"
	CutAnswer       applytest.Disturbance = "cut the answer of"
	FailWebhook     applytest.Disturbance = "fail the webhook of"
	FillQuota       applytest.Disturbance = "fill the quota of"
	HideKind        applytest.Disturbance = "make unavailable the kind of"
	ChangeLeader    applytest.Disturbance = "change the leader of etcd at"
	TimeOut         applytest.Disturbance = "time out"
	ThrottleAll     applytest.Disturbance = "throttle all from"
	SlowDown        applytest.Disturbance = "slow down from"
	SilenceWatches  applytest.Disturbance = "silence the watches at"
	AddReplica      applytest.Disturbance = "start another replica at"
	FlapNode        applytest.Disturbance = "flap a node at"
	CordonNode      applytest.Disturbance = "cordon a node at"
	DeleteNode      applytest.Disturbance = "delete a node at"
	LateEvents      applytest.Disturbance = "deliver late"
	RepeatEvents    applytest.Disturbance = "deliver twice"
	EndWatches      applytest.Disturbance = "end watches early"
	StaleReads      applytest.Disturbance = "answer reads of any state from the past"
	FillDisk        applytest.Disturbance = "fill the disk of etcd at"
	BlockEvictions  applytest.Disturbance = "block evictions from"
	RecreateKind    applytest.Disturbance = "delete the definition of"
	RestoreStore    applytest.Disturbance = "restore a backup at"
	RunOlder        applytest.Disturbance = "start an older version at"
	SkewClock       applytest.Disturbance = "set the server's clock apart"
	HoldObject      applytest.Disturbance = "hold the object of"
)

// Habit is a disturbance that a scenario has unless it leaves it out. A Scenario may add some of
// its own.
type Habit struct {
	Name applytest.Disturbance
	// Does is what happens, in a sentence.
	Does string
	// Source is where it was seen: an issue of a project, or a paper.
	Source string

	// Spell is how long it lasts at most: a moment if it is 0. One that lasts begins at one
	// request in a hundred at most.
	Spell time.Duration
	// Act is what happens at its beginning. Default nil, which is nothing.
	Act func(*World, applytest.Request)
	// Always is whether it is not begun by a request, but in a whole history or not:
	// World.Has.
	Always bool

	// refuses reports whether it refuses a request. It begins at such a one, and more often than
	// others that last. Nil: at any.
	refuses func(applytest.Request) bool
	// answers is what requests get meanwhile, the one that it began with included.
	answers func(began, r applytest.Request) (applytest.Fault, bool)
}

// every is for habits that all requests meet.
func every(f applytest.Fault) func(_, r applytest.Request) (applytest.Fault, bool) {
	return func(_, _ applytest.Request) (applytest.Fault, bool) { return f, true }
}

const htmlPage = "<html><head><title>%s</title></head><body>nginx</body></html>"

// Habits returns what may happen in a world, in the order in which a seed draws.
func Habits() []Habit {
	return []Habit{
		{Name: applytest.KillBefore, Does: "The program is killed before a request.", Source: "Sieve (OSDI 2022), crash between writes"},
		{Name: applytest.KillAfter, Does: "The program is killed after a request.", Source: "Sieve (OSDI 2022), crash between writes"},
		{Name: applytest.LoseRequest, Does: "A request is lost.", Source: "kubernetes/kubernetes#129795"},
		{Name: applytest.LoseAnswer, Does: "An answer is lost.", Source: "kubernetes/kubernetes#67662"},
		{Name: applytest.ServerError, Does: "A request is answered with 500.", Source: "kubernetes/kubernetes#141346"},
		{Name: applytest.Throttle, Does: "A request is answered with 429 and Retry-After.", Source: "API Priority and Fairness"},
		{Name: applytest.CutWatches, Does: "The watches of the program break.", Source: "kubernetes/kubernetes#67039"},
		{Name: applytest.ExpireWatches, Does: "The history of the server ends: watches begin again with a list.", Source: "etcd compaction"},
		{Name: Touch, Does: "Another client writes the object first, and the request conflicts.", Source: "any two writers", Act: touch},
		{
			Name: LabelObject, Does: "Another client labels the object.", Source: "kubectl label, cost and policy controllers", Act: label,
		},
		{
			Name: AddField, Does: "Another client adds an annotation, a key of the data, a container or a variable to an object of the program.",
			Source: "sidecar injectors, kubectl annotate", Act: addField,
		},
		{
			Name: DeleteDependent, Does: "Another client deletes the object, if it has a controller.", Source: "kubectl delete pod",
			Act: deleteDependent,
		},
		{
			Name: LoseRights, Does: "A verb on a kind, most often of a write, is forbidden for up to a minute.",
			Source: "a Role that is applied in two steps",
			Spell:  time.Minute, refuses: func(applytest.Request) bool { return true },
			answers: func(began, r applytest.Request) (applytest.Fault, bool) {
				return applytest.Fault{Status: http.StatusForbidden, Message: r.String() + " is forbidden"},
					r.Verb == began.Verb && r.Resource == began.Resource && r.Group == began.Group && r.Subresource == began.Subresource
			},
		},
		{
			Name: ExpireToken, Does: "All requests are answered with 401 for up to 30 seconds.", Source: "bound ServiceAccount tokens",
			Spell: 30 * time.Second, answers: every(applytest.Fault{Status: http.StatusUnauthorized, Message: "Unauthorized"}),
		},
		{
			Name: StopServer, Does: "The server is away for up to two minutes.", Source: "an upgrade of a control plane of one",
			Spell: 2 * time.Minute, answers: every(applytest.Fault{Lose: true}),
			Act: func(w *World, _ applytest.Request) { w.server.endWatches(applytest.ErrLost) },
		},
		{
			Name: ProxyPage, Does: "A proxy answers 502 with a page for up to 20 seconds.", Source: "nginx before an API server that restarts",
			Spell: 20 * time.Second, answers: every(applytest.Fault{Status: http.StatusBadGateway, Page: fmt.Sprintf(htmlPage, "502 Bad Gateway")}),
		},
		{
			Name: ProxyRefusal, Does: "A proxy answers 400 with a page to one request.", Source: "a header that a proxy does not take",
			answers: every(applytest.Fault{Status: http.StatusBadRequest, Page: fmt.Sprintf(htmlPage, "400 Bad Request")}),
		},
		{
			Name: LoginPage, Does: "A proxy answers 200 with a page for up to 20 seconds.", Source: "a single sign-on whose session has ended",
			Spell: 20 * time.Second, answers: every(applytest.Fault{Status: http.StatusOK, Page: fmt.Sprintf(htmlPage, "Log in")}),
		},
		{
			Name: CutAnswer, Does: "An answer ends in the middle.", Source: "a load balancer that is replaced",
			answers: every(applytest.Fault{CutAnswer: true}),
		},
		{
			Name: FailWebhook, Does: "Writes of a kind are answered with 500 for up to a minute.", Source: "a webhook without endpoints",
			Spell: time.Minute,
			answers: func(began, r applytest.Request) (applytest.Fault, bool) {
				return applytest.Fault{
					Status:  http.StatusInternalServerError,
					Message: `Internal error occurred: failed calling webhook "policy.example.com": context deadline exceeded`,
				}, began.Writes() && r.Writes() && r.Resource == began.Resource && r.Group == began.Group
			},
		},
		{
			Name: FillQuota, Does: "Creates of a kind are refused for up to a minute.", Source: "ResourceQuota",
			Spell: time.Minute, refuses: func(r applytest.Request) bool { return r.Verb == "create" && r.Subresource == "" },
			answers: func(began, r applytest.Request) (applytest.Fault, bool) {
				return applytest.Fault{
					Status:  http.StatusForbidden,
					Message: r.Resource + " is forbidden: exceeded quota: quota, requested: count=1, used: count=9, limited: count=9",
				}, r.Verb == "create" && r.Resource == began.Resource && r.Group == began.Group
			},
		},
		{
			Name: HideKind, Does: "All requests for a kind are answered with 503 for up to a minute.",
			Source: "an aggregated API whose pods restart", Spell: time.Minute,
			answers: func(began, r applytest.Request) (applytest.Fault, bool) {
				return applytest.Fault{Status: http.StatusServiceUnavailable, Message: "service unavailable"},
					r.Resource == began.Resource && r.Group == began.Group
			},
		},
		{
			Name: ChangeLeader, Does: "A request is carried out and answered with 500.", Source: "etcdserver: leader changed",
			answers: every(applytest.Fault{LoseAnswer: true, Status: http.StatusInternalServerError, Message: "etcdserver: leader changed"}),
		},
		{
			Name: TimeOut, Does: "A request is carried out and answered with 504.", Source: "etcdserver: request timed out",
			answers: every(applytest.Fault{
				LoseAnswer: true, Status: http.StatusGatewayTimeout, Message: "Timeout: request did not complete within requested timeout",
			}),
		},
		{
			Name: ThrottleAll, Does: "All requests are answered with 429 for up to a minute.", Source: "a list of everything by another client",
			Spell: time.Minute, answers: every(applytest.Fault{Status: http.StatusTooManyRequests, RetryAfter: 10 * time.Second}),
		},
		{Name: SlowDown, Does: "Answers take up to 20 seconds for up to a minute.", Source: "a slow disk of etcd", Spell: time.Minute},
		{
			Name: SilenceWatches, Does: "Open watches bring nothing any more, until the server ends them.",
			Source: "half-open connections, kubernetes/client-go#374",
			Act:    func(w *World, _ applytest.Request) { w.silence() },
		},
		{
			Name: AddReplica, Does: "A second replica of a program with a Lease runs beside the first for up to two minutes.",
			Source: "a node that is cut off, and comes back", Spell: 2 * time.Minute, Act: addReplica,
		},
		{Name: FlapNode, Does: "A Node is not ready for up to two minutes.", Source: "karpenter, cluster-autoscaler", Act: flapNode},
		{Name: CordonNode, Does: "A Node is cordoned for up to two minutes.", Source: "kubectl drain", Act: cordonNode},
		{Name: DeleteNode, Does: "A Node and its pods are gone.", Source: "a cloud-controller-manager", Act: deleteNode},
		{Name: LateEvents, Does: "Events of watches come up to 20 seconds late.", Source: "Sieve (OSDI 2022), stale state", Always: true},
		{Name: RepeatEvents, Does: "Events of watches come twice.", Source: "a watch that begins again", Always: true},
		{Name: EndWatches, Does: "Watches end after seconds.", Source: "idle timeouts of load balancers", Always: true},
		{
			Name: StaleReads, Does: "Reads of any version see a state of up to 20 seconds ago.",
			Source: "Sieve (OSDI 2022), stale state", Always: true,
		},
		{
			Name: FillDisk, Does: "All writes are answered with 500 for up to a minute.", Source: "etcdserver: mvcc: database space exceeded",
			Spell: time.Minute,
			answers: func(_, r applytest.Request) (applytest.Fault, bool) {
				return applytest.Fault{Status: http.StatusInternalServerError, Message: "etcdserver: mvcc: database space exceeded"}, r.Writes()
			},
		},
		{
			Name: BlockEvictions, Does: "Evictions are answered with 429 for up to two minutes.", Source: "a PodDisruptionBudget",
			Spell: 2 * time.Minute,
			answers: func(_, r applytest.Request) (applytest.Fault, bool) {
				return applytest.Fault{
					Status:  http.StatusTooManyRequests,
					Message: "Cannot evict pod as it would violate the pod's disruption budget.",
				}, r.Subresource == "eviction"
			},
		},
		{
			Name: RecreateKind, Does: "A custom kind goes with all its objects, and is back up to 30 seconds later.",
			Source: "a chart that is uninstalled", Spell: 30 * time.Second, Act: recreateKind,
			answers: func(began, r applytest.Request) (applytest.Fault, bool) {
				return applytest.Fault{Status: http.StatusNotFound, Message: "the server could not find the requested resource"},
					Kind{Group: began.Group}.custom() && r.Resource == began.Resource && r.Group == began.Group
			},
		},
		{
			Name: RestoreStore, Does: "All objects are again as they were up to a minute ago.",
			Source: "etcdutl snapshot restore --bump-revision", Act: restoreStore,
		},
		{
			Name: RunOlder, Does: "An older version of the program, if there is one, runs beside it.",
			Source: "a rolling update", Act: runOlder,
		},
		{
			Name: SkewClock, Does: "The times that the server writes are up to 10 minutes ahead or behind.",
			Source: "two machines without a common time", Always: true,
		},
		{
			Name: HoldObject, Does: "Another client puts a finalizer on the object, and takes it away within ten seconds. Only it may do that.",
			Source: "velero, external-dns, volume controllers", Act: hold,
		},
	}
}

// spell is a habit while it lasts.
type spell struct {
	habit Habit
	began applytest.Request
	until time.Time
}

// begin lets a habit happen at a request.
func (w *World) begin(h Habit, r applytest.Request) applytest.Fault {
	if h.Act != nil {
		h.Act(w, r)
	}
	if h.Spell > 0 {
		length := time.Duration(1 + w.dice("spell "+string(h.Name)).Int64N(int64(h.Spell)))
		w.mu.Lock()
		w.spells = append(w.spells, spell{h, r, time.Now().Add(length)})
		w.mu.Unlock()
		w.Disturb(time.Now().Add(length))
	}
	if h.answers != nil {
		if f, ok := h.answers(r, r); ok {
			return f
		}
	}
	return applytest.Fault{}
}

// refusal returns a habit that refuses a request from now on, empty if there is none. Reads are
// refused as rarely as with habits that last, and what was refused is let through for a while.
func (w *World) refusal(dice *rand.Rand, r applytest.Request) applytest.Disturbance {
	w.mu.Lock()
	spells := slices.Clone(w.spells)
	w.mu.Unlock()
	fits := slices.DeleteFunc(slices.Clone(w.refusals), func(h Habit) bool {
		return !h.refuses(r) || slices.ContainsFunc(spells, func(s spell) bool {
			refused := s.habit.refuses != nil && s.began.Verb == r.Verb && s.began.Resource == r.Resource
			return refused && time.Since(s.until) < 2*time.Minute
		})
	})
	if len(fits) == 0 || incidental(r.Group, r.Resource) || !r.Writes() && dice.IntN(20) > 0 {
		return ""
	}
	return fits[dice.IntN(len(fits))].Name
}

// suffers returns what the spells that last do to a request.
func (w *World) suffers(r applytest.Request) (applytest.Fault, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.spells {
		if s.habit.answers == nil || !time.Now().Before(s.until) || w.calm {
			continue
		}
		if f, ok := s.habit.answers(s.began, r); ok {
			return f, true
		}
	}
	return applytest.Fault{}, false
}

// Has reports whether this history has a habit that is Always.
func (w *World) Has(name applytest.Disturbance) bool { return w.always[name] && !w.plan.calm }

// Lasts reports whether the spell of a habit lasts.
func (w *World) Lasts(name applytest.Disturbance) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.spells {
		if s.habit.Name == name && time.Now().Before(s.until) && !w.calm {
			return true
		}
	}
	return false
}

// endWatches ends all watches.
func (s *Server) endWatches(why error) {
	s.mu.Lock()
	open := slices.Clone(s.streams)
	s.mu.Unlock()
	for _, st := range open {
		st.end(why)
	}
}

// endWatchesOf ends the watches of a kind.
func (s *Server) endWatchesOf(group, resource string) {
	s.mu.Lock()
	open := slices.Clone(s.streams)
	s.mu.Unlock()
	for _, st := range open {
		if st.call.Group == group && st.call.Resource == resource {
			st.end(io.EOF)
		}
	}
}

// silence lets the open watches bring nothing any more.
func (w *World) silence() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for _, st := range w.server.streams {
		st.muted = true
	}
	w.Disturb(time.Now().Add(longestWatch))
}
