package apply //nolint:testpackage // plans are given

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// guardModel says what a guard must do, without hashes, memories and restarts.
type guardModel struct {
	limit   map[bool]Limit // by cause: named or absent
	window  time.Duration
	log     []modelDeletion
	holding map[bool]bool
}

type modelDeletion struct {
	unit            string
	named, approved bool
	at              time.Time
	going           bool
}

// step returns the units that may be deleted. Due maps each unit to its cause; approve is
// whether a person has approved what is held.
// Exists has the units that exist.
func (m *guardModel) step(now time.Time, due, exists map[string]bool, approve bool) (allowed []string) {
	var log []modelDeletion
	going := map[string]bool{}
	owned := maps.Clone(exists) // and those that were deleted
	for _, d := range m.log {
		_, still := due[d.unit]
		d.going = d.going && still
		if !d.going && now.Sub(d.at) >= m.window {
			continue
		}
		log = append(log, d)
		if d.going {
			going[d.unit] = true
		} else {
			owned[d.unit] = true
		}
	}
	for _, named := range []bool{false, true} {
		var fresh []string
		for unit, is := range due {
			if is == named && !going[unit] {
				fresh = append(fresh, unit)
			}
		}
		before := 0
		for _, d := range log {
			if d.named == named && !d.approved {
				before++
			}
		}
		limit := max(0, m.limit[named].Count, len(owned)*m.limit[named].Percent/100)
		over := len(fresh) > 0 && (before+len(fresh) > limit || m.holding[named])
		m.holding[named] = over && !approve
		if m.holding[named] {
			continue
		}
		for _, unit := range fresh {
			log = append(log, modelDeletion{unit, named, over, now, true})
			allowed = append(allowed, unit)
		}
	}
	m.log = log
	for unit := range going {
		allowed = append(allowed, unit)
	}
	slices.Sort(allowed)
	return allowed
}

// having is the census of these units.
func having(exists map[string]bool) func() census {
	return func() census { return census{number: len(exists), names: maps.Keys(exists)} }
}

// restart returns to what was recorded at a time: the time since then is not known.
func (m *guardModel) restart(recorded []modelDeletion, at time.Time) {
	m.log = slices.Clone(recorded)
	for i := range m.log {
		m.log[i].at = m.log[i].at.Add(time.Since(at))
	}
}

// Random histories of units that are lost, named and come back, of deletions that
// take several passes, restarts, approvals of the held set and of others, and a memory
// that cannot be reached: nothing is deleted that the model would hold, and nothing is
// held that it would let go.
func TestAGuardDoesWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			memory := &remembered{}
			limits := map[bool]Limit{
				false: {Count: 1 + random.IntN(4), Percent: 10 * random.IntN(4)},
				true:  {Count: 3 + random.IntN(4), Percent: 25},
			}
			start := func() *Guard {
				return &Guard{Unit: byService, Absent: limits[false], Named: limits[true], Memory: memory}
			}
			g := start()
			model := &guardModel{limit: limits, window: time.Hour, holding: map[bool]bool{}}
			number := 12 + random.IntN(10)
			exists, lost, named := map[string]bool{}, map[string]bool{}, map[string]bool{}
			for i := range number {
				exists[fmt.Sprintf("service-%02d", i)] = true
			}
			var last, stale string
			sets := map[string][]string{} // by digest
			holds := map[string]int{}     // by digest: the hold in which it was reported last
			hold := 0                     // the number of the present one
			var recorded []modelDeletion
			recordedAt, restarted := time.Now(), false
			for step := range 60 {
				for range random.IntN(3) {
					unit := fmt.Sprintf("service-%02d", random.IntN(number))
					switch act := random.IntN(5); {
					case act > 2 || !exists[unit]: // it is wanted again, and made if it has gone
						exists[unit] = true
						delete(lost, unit)
						delete(named, unit)
					case act == 2:
						lost[unit], named[unit] = true, true
					default:
						lost[unit] = true
					}
				}
				due := map[string]bool{}
				var services []string
				for unit := range lost {
					due[unit] = named[unit]
					services = append(services, unit)
				}
				slices.Sort(services)
				approved := ""
				switch random.IntN(6) {
				case 0:
					approved = last
				case 1:
					approved = stale
				case 2: // an earlier digest
					digests := slices.Sorted(maps.Keys(sets))
					if len(digests) > 0 {
						approved = digests[random.IntN(len(digests))]
					}
				}
				wasHeld := model.holding[false] || model.holding[true]
				if random.IntN(5) == 0 {
					g, restarted = start(), true
				}
				memory.broken = nil
				if random.IntN(10) == 0 {
					memory.broken = errors.New("no answer")
				}
				if restarted && memory.broken == nil {
					model.restart(recorded, recordedAt)
					restarted = false
				}
				plan := lacking(services...)
				saves := memory.saves
				held, err := g.hold(t.Context(), plan, having(exists), func(o Observed) bool { return named[o.ID.Namespace] }, approved, true)
				var went []string
				for _, o := range plan.due {
					if !slices.Contains(went, o.ID.Namespace) {
						went = append(went, o.ID.Namespace)
					}
				}
				where := fmt.Sprintf("seed %d, step %d: %s", seed, step, strings.Join(services, " "))
				if memory.broken != nil {
					for _, unit := range went {
						require.True(t, slices.ContainsFunc(model.log, func(d modelDeletion) bool { return d.going && d.unit == unit }),
							"%s: %s is begun while nothing can be recorded", where, unit)
					}
					if len(services) == 0 {
						require.NoError(t, err, where)
					}
					continue
				}
				next := *model
				next.holding = map[bool]bool{false: model.holding[false], true: model.holding[true]}
				expected := next.step(time.Now(), due, exists, false)
				if approved != "" && err == nil && len(expected) < len(services) {
					approvedUnits := slices.DeleteFunc(slices.Clone(services), func(unit string) bool { return slices.Contains(expected, unit) })
					require.Equal(t, approvedUnits, sets[approved], "%s: an approval of another set", where)
					require.Equal(t, hold, holds[approved], "%s: an approval of an earlier hold", where)
					require.True(t, wasHeld, "%s: an approval of what was not held yet", where)
					expected = model.step(time.Now(), due, exists, true)
				} else {
					*model = next
				}
				if !wasHeld && err != nil {
					hold++
				}
				holds[held.Digest] = hold
				if memory.saves > saves {
					recorded, recordedAt = slices.Clone(model.log), time.Now()
				}
				require.Equal(t, expected, slices.Clip(append([]string(nil), went...)), where)
				require.Equal(t, err != nil, len(held.Units) > 0, where)
				require.Len(t, unitsOf(held), len(services)-len(went), where)
				stale = last
				last = held.Digest
				sets[last] = unitsOf(held)
				for _, unit := range went { // most deletions end at once, some take longer
					if random.IntN(4) > 0 {
						delete(lost, unit)
						delete(named, unit)
						delete(exists, unit)
					}
				}
				time.Sleep(time.Duration(random.IntN(25)) * time.Minute)
			}
		})
	}
}
