package diff_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/diff"
)

var paths = []string{
	`.spec.replicas`,
	`.metadata.annotations["example.com/owner"]`,
	`.metadata.annotations["a\"b"]`,
	`.spec.containers[name="main"].image`,
	`.spec.containers[*].image`,
	`.spec.ports[port=53,protocol="UDP"]`,
	`.list["a.b"=1.5,c=true]`,
	`.metadata.finalizers[="example.com/x"]`,
	`.set[=-1]`,
	`.set[=null]`,
	`.rules[2].x`,
	`[""]`,
}

func TestPathsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		again, err := diff.ReformatPath(path)
		require.NoError(t, err, path)
		require.Equal(t, path, again)
	}
}

func TestAPathErrorSaysWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		``:                         `is empty; a path begins with a dot: .spec.replicas`,
		`spec.replicas`:            `at offset 0: want .name or [ here, as in .spec.replicas`,
		`.spec.`:                   `at offset 6: want a name here, as in .spec.replicas`,
		`.a.b/c`:                   `at offset 3: the name "b/c" needs brackets and quotes, as in .metadata.annotations["example.com/owner"]`,
		`.a[b]`:                    `at offset 4: want [b=value], [=value], ["name"], [0] or [*]`,
		`.a[b=x]`:                  `at offset 5: want a JSON value here, as in [name="main"]: invalid character 'x' looking for beginning of value`,
		`.a[b=`:                    `at offset 5: want a JSON value here, as in [name="main"]`,
		`.a[b={}]`:                 `at offset 5: want a string, a number, true, false or null here`,
		`.a[b=1`:                   `at offset 6: want ] here`,
		`.a[b=1,b=2]`:              `at offset 10: the key b is given twice`,
		`.a[*`:                     `at offset 4: want ] here`,
		`.a[99999999999999999999]`: `at offset 3: strconv.Atoi: parsing "99999999999999999999": value out of range`,
	} {
		_, err := diff.ReformatPath(path)
		require.EqualError(t, err, want, path)
	}
}

func FuzzAPathThatIsReadIsWrittenTheSame(f *testing.F) {
	for _, path := range paths {
		f.Add(path)
	}
	f.Add(`.a[b=1e400]`)
	f.Add(`.a["\ud800"=1]`)
	f.Fuzz(func(t *testing.T, text string) {
		once, err := diff.ReformatPath(text)
		if err != nil {
			return
		}
		twice, err := diff.ReformatPath(once)
		require.NoError(t, err, once)
		require.Equal(t, once, twice)
	})
}
