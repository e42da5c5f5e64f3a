package snapshot_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/snapshot"
)

const killDir = "TRUEUP_SNAPSHOT_KILL_DIR"

// TestMain makes this program, started again, one that appends and delivers until it is
// killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		if err := appendForEver(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// appendForEver appends numbers, one batch after the other, delivers some of them, and
// prints each number that it is to be held to.
func appendForEver(dir string) error {
	j, err := snapshot.OpenJournal(&snapshot.Spool{Dir: dir, MaxBytes: 1 << 20})
	if err != nil {
		return err
	}
	first, err := strconv.Atoi(os.Getenv("TRUEUP_SNAPSHOT_KILL_FIRST"))
	if err != nil {
		return err
	}
	for n := first; ; n += 5 {
		if err := j.Append(numbers(n, n+5), time.Now()); err != nil {
			return err
		}
		fmt.Println("appended", n+4)
		if n/5%3 != 2 {
			continue
		}
		records, err := j.Next(8, 1<<20, time.Now())
		if err != nil {
			return err
		}
		fmt.Println("delivering", string(records[len(records)-1]))
		if err := j.Delivered(); err != nil {
			return err
		}
	}
}

// TestAProcessThatIsKilledLosesNothingThatWasAppended kills a process with SIGKILL while
// it appends and delivers, again and again on one folder.
func TestAProcessThatIsKilledLosesNothingThatWasAppended(t *testing.T) {
	t.Parallel()
	dir, first := t.TempDir(), 0
	for round := range 12 {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), killDir+"="+dir, "TRUEUP_SNAPSHOT_KILL_FIRST="+strconv.Itoa(first))
		child.Stderr = os.Stderr
		output, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		appended, delivered, lines := first-1, -1, 0
		enough := 10 + rand.IntN(200) //nolint:gosec // a test
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			what, number, _ := strings.Cut(scanner.Text(), " ")
			n, err := strconv.Atoi(number)
			require.NoError(t, err)
			switch what {
			case "appended":
				appended = n
			case "delivering":
				delivered = n
			}
			if lines++; lines == enough {
				require.NoError(t, child.Process.Kill())
			}
		}
		require.Error(t, child.Wait())
		require.GreaterOrEqual(t, lines, enough)

		j := open(t, &snapshot.Spool{Dir: dir, MaxBytes: 1 << 20})
		pending, _ := j.Pending()
		records, err := j.Next(pending+1, 1<<20, time.Now())
		require.NoError(t, err)
		var got []string
		for len(records) > 0 {
			got = append(got, texts(records)...)
			require.NoError(t, j.Delivered())
			records, err = j.Next(pending+1, 1<<20, time.Now())
			require.NoError(t, err)
		}
		require.NotEmpty(t, got)
		oldest, err := strconv.Atoi(got[0])
		require.NoError(t, err)
		newest, err := strconv.Atoi(got[len(got)-1])
		require.NoError(t, err)
		require.Equal(t, texts(numbers(oldest, newest+1)), got, "round %d: without a gap, in order", round)
		require.GreaterOrEqual(t, newest, appended, "round %d", round)
		require.LessOrEqual(t, oldest, delivered+1, "round %d", round)
		require.NoError(t, j.Close())
		first = newest + 1
	}
}
