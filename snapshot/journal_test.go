package snapshot_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/snapshot"
)

// now is when records are written, in whole milliseconds as a spool has them.
var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, s *snapshot.Spool) snapshot.Journal {
	t.Helper()
	j, err := snapshot.OpenJournal(s)
	require.NoError(t, err)
	return j
}

// numbers are records that are their number.
func numbers(from, to int) []json.RawMessage {
	var list []json.RawMessage
	for n := from; n < to; n++ {
		list = append(list, json.RawMessage(strconv.Itoa(n)))
	}
	return list
}

// drain delivers everything and returns it.
func drain(t *testing.T, j snapshot.Journal, at time.Time) []string {
	t.Helper()
	var got []string
	for {
		records, err := j.Next(7, 1<<20, at)
		require.NoError(t, err)
		if len(records) == 0 {
			return got
		}
		for _, r := range records {
			got = append(got, string(r))
		}
		require.NoError(t, j.Delivered())
	}
}

func texts(records []json.RawMessage) []string {
	var list []string
	for _, r := range records {
		list = append(list, string(r))
	}
	return list
}

// segments are the files of a spool, in order.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.spool"))
	require.NoError(t, err)
	return files
}

func TestASpoolReturnsRecordsInOrderAndKeepsThemOverARestart(t *testing.T) {
	t.Parallel()
	s := &snapshot.Spool{Dir: filepath.Join(t.TempDir(), "a", "b"), MaxBytes: 64 << 10}
	j := open(t, s)
	for n := range 50 {
		require.NoError(t, j.Append(numbers(n*10, n*10+10), now))
	}
	require.Greater(t, len(segments(t, s.Dir)), 2)
	first, err := j.Next(5, 1<<20, now)
	require.NoError(t, err)
	again, err := j.Next(5, 1<<20, now)
	require.NoError(t, err)
	require.Equal(t, texts(numbers(0, 5)), texts(again), "what is not delivered is returned again")
	require.Equal(t, texts(first), texts(again))
	require.NoError(t, j.Close())

	j = open(t, s)
	records, _ := j.Pending()
	require.Equal(t, 500, records)
	require.Equal(t, texts(numbers(0, 500)), drain(t, j, now))
	records, size := j.Pending()
	require.Zero(t, records)
	require.Zero(t, size)
	require.Empty(t, segments(t, s.Dir), "what is delivered is removed")
	require.Zero(t, j.Lost())
	require.NoError(t, j.Append(numbers(0, 3), now))
	require.Equal(t, texts(numbers(0, 3)), drain(t, j, now))
	require.NoError(t, j.Close())
}

func TestASpoolBoundsABatch(t *testing.T) {
	t.Parallel()
	j := open(t, &snapshot.Spool{Dir: t.TempDir()})
	defer j.Close()
	require.NoError(t, j.Append(numbers(100, 200), now))
	for _, test := range []struct{ records, bytes, want int }{{10, 1 << 20, 10}, {100, 20, 5}, {100, 19, 4}, {100, 1, 1}} {
		got, err := j.Next(test.records, test.bytes, now)
		require.NoError(t, err)
		require.Len(t, got, test.want, "%+v", test)
	}
}

func TestTheOldestIsDroppedFirstAndCounted(t *testing.T) {
	t.Parallel()
	s := &snapshot.Spool{Dir: t.TempDir(), MaxBytes: 16 << 10}
	j := open(t, s)
	defer j.Close()
	const all = 2000
	for n := range all {
		require.NoError(t, j.Append(numbers(n, n+1), now))
		_, size := j.Pending()
		require.LessOrEqual(t, size, s.MaxBytes)
		var onDisk int64
		if n%100 == 0 {
			for _, file := range segments(t, s.Dir) {
				info, err := os.Stat(file)
				require.NoError(t, err)
				onDisk += info.Size()
			}
			require.Equal(t, size, onDisk)
		}
	}
	kept, _ := j.Pending()
	lost := j.Lost()
	require.Equal(t, all, kept+lost, "every record is kept or counted")
	require.Greater(t, kept, all/4, "a sixteenth is dropped at once, not all")
	require.Equal(t, texts(numbers(lost, all)), drain(t, j, now), "the newest are kept")

	err := j.Append([]json.RawMessage{[]byte(`"` + strings.Repeat("x", 17<<10) + `"`)}, now)
	require.ErrorContains(t, err, "1 records take")
}

func TestRecordsThatAreTooOldAreDroppedAndCounted(t *testing.T) {
	t.Parallel()
	s := &snapshot.Spool{Dir: t.TempDir()}
	j := open(t, s)
	require.NoError(t, j.Append(numbers(0, 10), now))
	require.NoError(t, j.Append(numbers(10, 20), now.Add(23*time.Hour)))
	late := now.Add(24*time.Hour + time.Minute)
	require.Equal(t, texts(numbers(10, 20)), drain(t, j, late), "in one file, the younger ones are kept")
	require.Equal(t, 10, j.Lost())

	require.NoError(t, j.Append(numbers(0, 10), now))
	require.NoError(t, j.Close())
	j = open(t, s)
	require.NoError(t, j.Append(numbers(20, 30), late))
	require.Equal(t, 10, j.Lost(), "a whole file goes when something is appended")
	require.Len(t, segments(t, s.Dir), 1)
	require.Equal(t, texts(numbers(20, 30)), drain(t, j, late))
	require.NoError(t, j.Close())
}

func TestASpoolHasOneUser(t *testing.T) {
	t.Parallel()
	s := &snapshot.Spool{Dir: t.TempDir()}
	j := open(t, s)
	_, err := snapshot.OpenJournal(s)
	require.ErrorIs(t, err, snapshot.ErrSpoolLocked)
	require.NoError(t, j.Close())
	j = open(t, s)
	require.NoError(t, j.Close())
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := &snapshot.Spool{Dir: t.TempDir()}
	for _, name := range []string{"README", "x.spool", ".spool", "-1.spool", "18446744073709551615.spool"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.Dir, name), []byte("mine"), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(s.Dir, "7.spool"), 0o700))
	j := open(t, s)
	require.NoError(t, j.Append(numbers(0, 1), now))
	require.Equal(t, texts(numbers(0, 1)), drain(t, j, now))
	require.Zero(t, j.Lost())
	require.NoError(t, j.Close())
	entries, err := os.ReadDir(s.Dir)
	require.NoError(t, err)
	require.Len(t, entries, 7, "%v", entries)
}

// written returns the content of a segment of eight records.
func written(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	j := open(t, &snapshot.Spool{Dir: dir})
	for n := range 4 {
		require.NoError(t, j.Append(numbers(1000+2*n, 1002+2*n), now))
	}
	require.NoError(t, j.Close())
	content, err := os.ReadFile(segments(t, dir)[0])
	require.NoError(t, err)
	return content
}

// reopened returns what a spool has whose only segment is content, and how much it
// counts as lost.
func reopened(t *testing.T, dir string, content []byte) (got []string, lost int) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0000000000000003.spool"), content, 0o600))
	j := open(t, &snapshot.Spool{Dir: dir})
	require.NoError(t, j.Append(numbers(5000, 5001), now), "it can be written")
	got = drain(t, j, now)
	lost = j.Lost()
	require.NoError(t, j.Close())
	require.Empty(t, segments(t, dir))
	require.Equal(t, "5000", got[len(got)-1])
	return append([]string(nil), got[:len(got)-1]...), lost
}

func TestASegmentThatIsCutAtAnyByteGivesWhatIsBeforeTheCut(t *testing.T) {
	t.Parallel()
	content, dir := written(t), t.TempDir()
	size := len(content) / 8
	for cut := range len(content) + 1 {
		got, lost := reopened(t, dir, content[:cut])
		require.Equal(t, texts(numbers(1000, 1000+cut/size)), got, "cut at %d", cut)
		require.Equal(t, min(1, cut%size), lost, "cut at %d", cut)
	}
}

func TestASegmentThatIsDamagedAtAnyByteLosesOneRecord(t *testing.T) {
	t.Parallel()
	content, dir := written(t), t.TempDir()
	size := len(content) / 8
	for at := range content {
		for _, damage := range []byte{0x01, 0x80, 0xff} {
			damaged := append([]byte(nil), content...)
			damaged[at] ^= damage
			got, lost := reopened(t, dir, damaged)
			want := append(numbers(1000, 1000+at/size), numbers(1001+at/size, 1008)...)
			require.Equal(t, texts(want), got, "byte %d", at)
			require.Equal(t, 1, lost, "byte %d", at)
		}
	}
}

func TestASegmentWithHolesGivesWhatIsWhole(t *testing.T) {
	t.Parallel()
	content, dir := written(t), t.TempDir()
	size := len(content) / 8
	zeros := make([]byte, 4096)
	got, lost := reopened(t, dir, append(append([]byte(nil), content...), zeros...))
	require.Equal(t, texts(numbers(1000, 1008)), got, "a file that was made longer and not filled")
	require.Equal(t, 1, lost)
	holes := append([]byte(nil), content...)
	copy(holes[size:3*size], zeros)
	copy(holes[5*size:], zeros[:size])
	got, lost = reopened(t, dir, holes)
	require.Equal(t, []string{"1000", "1003", "1004", "1006", "1007"}, got)
	require.Equal(t, 2, lost, "a stretch counts as one")
}

// TestASpoolDoesWhatAListDoes compares a spool with a list, over random appends,
// deliveries, restarts and damage to nothing.
func TestASpoolDoesWhatAListDoes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // a seed
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
	s := &snapshot.Spool{Dir: t.TempDir(), MaxBytes: 8 << 10}
	j := open(t, s)
	next, lost, delivered := 0, 0, 0
	var list []string // not delivered
	check := func(what string) {
		t.Helper()
		lost += j.Lost()
		pending, _ := j.Pending()
		require.Equal(t, next, pending+delivered+lost, "%s: seed %d", what, seed)
		list = list[len(list)-pending:]
	}
	for range 3000 {
		switch random.IntN(10) {
		case 0, 1, 2, 3, 4:
			n := 1 + random.IntN(20)
			require.NoError(t, j.Append(numbers(next, next+n), now))
			list = append(list, texts(numbers(next, next+n))...)
			next += n
			check("append")
		case 5, 6, 7, 8:
			records, err := j.Next(1+random.IntN(40), 1+random.IntN(200), now)
			require.NoError(t, err)
			require.Equal(t, len(list) == 0, len(records) == 0)
			for i, r := range records {
				require.Equal(t, list[i], string(r), "seed %d", seed)
			}
			if random.IntN(4) > 0 {
				require.NoError(t, j.Delivered())
				delivered += len(records)
				check("deliver")
			}
		default:
			require.NoError(t, j.Close())
			j = open(t, s)
			// What was delivered of the first file comes again.
			pending, _ := j.Pending()
			again := pending - len(list)
			require.GreaterOrEqual(t, again, 0)
			delivered -= again
			if again > 0 {
				list = append(texts(numbers(next-pending, next-len(list))), list...)
			}
			check("restart")
		}
	}
	require.NoError(t, j.Close())
	require.NotZero(t, lost, "the bound was reached")
}

func TestADiskThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := snapshot.OpenJournal(&snapshot.Spool{Dir: file})
	require.ErrorContains(t, err, "not a directory")

	dir := t.TempDir()
	j := open(t, &snapshot.Spool{Dir: dir})
	require.NoError(t, os.RemoveAll(dir))
	require.Error(t, j.Append(numbers(0, 1), now))
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, j.Append(numbers(1, 2), now))
	require.Equal(t, texts(numbers(1, 2)), drain(t, j, now))
	require.NoError(t, j.Close())
}

func FuzzDamage(f *testing.F) {
	frame := snapshot.AppendFrame(nil, []byte(`{"a":1}`), now)
	f.Add([]byte{})
	f.Add(frame)
	f.Add(append(frame[:9:9], frame...))
	f.Add([]byte(strings.Repeat(string(frame[:4]), 9)))
	f.Fuzz(func(t *testing.T, noise []byte) {
		noise = noise[:min(len(noise), 8<<10)] // each mark may cost a checksum of the rest
		whole := snapshot.AppendFrame(nil, []byte("first"), now)
		whole = append(whole, noise...)
		whole = snapshot.AppendFrame(whole, []byte("last"), now)
		records, damaged := snapshot.Frames(whole)
		require.GreaterOrEqual(t, len(records), 2)
		require.Equal(t, "first", string(records[0]))
		require.Equal(t, "last", string(records[len(records)-1]), "what follows the noise is found")
		inside, _ := snapshot.Frames(noise)
		require.GreaterOrEqual(t, len(records), len(inside))
		if len(noise) > 0 && len(inside) == 0 {
			require.Equal(t, 1, damaged)
		}
		size := 0
		for _, r := range records {
			size += snapshot.FrameHeader + len(r)
		}
		require.LessOrEqual(t, size, len(whole), "no byte is in two records")
	})
}
