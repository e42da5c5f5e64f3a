package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// pause lasts for a time, or until ctx ends, which is an error.
func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(length):
		return nil
	}
}

// until asks every 50 ms until the condition holds. It fails with the error of the condition,
// or with the reason when ctx ends first.
func until(ctx context.Context, holds func() (bool, error)) error {
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// listening waits for the log line with the address that a program listens on.
func listening(ctx context.Context, p *process.Process, purpose string) (address string, err error) {
	err = until(ctx, func() (bool, error) {
		select {
		case <-p.Exited():
			return false, fmt.Errorf("%s ended: %w", p.Name, errors.Join(p.Err(), errors.New(p.Tail())))
		default:
		}
		data, err := os.ReadFile(p.Log)
		for line := range strings.Lines(string(data)) {
			var entry struct{ Msg, Address, For string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "listening" && (purpose == "" || entry.For == purpose) {
				address = entry.Address
				break
			}
		}
		return address != "", err
	})
	return address, err
}

// rest waits until nothing is sent for half of the window, and notes how much is sent in the
// window after it, which is an error. sent returns the number so far.
func (d *demo) rest(ctx context.Context, name, what string, window time.Duration, sent func() (int, error)) (string, error) {
	last, err := sent()
	for quiet := false; err == nil && !quiet; {
		before := last
		if err = pause(ctx, window/2); err == nil {
			last, err = sent()
		}
		quiet = last == before
		d.display.progress("%d more were sent", last-before)
	}
	if err == nil {
		err = pause(ctx, window)
	}
	if err != nil {
		return "", err
	}
	now, err := sent()
	if err == nil && now > last {
		err = fmt.Errorf("%d %s in %s although nothing had changed", now-last, what, window)
	}
	unit, _, _ := strings.Cut(what, " ")
	d.note(name, float64(now-last), unit)
	return fmt.Sprintf("%d %s in %s", now-last, what, window), err
}

// scrape returns the samples of the metrics at an address.
func scrape(ctx context.Context, address string) (samples model.Vector, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	decoder := expfmt.SampleDecoder{
		Dec:  expfmt.NewDecoder(response.Body, expfmt.NewFormat(expfmt.TypeTextPlain)),
		Opts: &expfmt.DecodeOptions{},
	}
	for {
		var family model.Vector
		err := decoder.Decode(&family)
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", address, err)
		}
		samples = append(samples, family...)
	}
}
