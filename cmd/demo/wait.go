package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// wait lasts for a time, or until ctx ends, which is an error.
func wait(ctx context.Context, length time.Duration) error {
	if !pause.For(ctx, length) {
		return context.Cause(ctx)
	}
	return nil
}

// until asks every 50 ms until the condition holds. It fails with the error of the condition,
// or with the reason when ctx ends first.
func until(ctx context.Context, holds func() (bool, error)) error {
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
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
		if err = wait(ctx, window/2); err == nil {
			last, err = sent()
		}
		quiet = last == before
		d.display.progress("%d %s in the last %s", last-before, what, window/2)
	}
	if err == nil {
		err = wait(ctx, window)
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
func scrape(ctx context.Context, address string) (model.Vector, error) {
	text, err := ask(ctx, http.MethodGet, "http://"+address+"/metrics", "", "", "")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", address, err)
	}
	return expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
}

// send sends a request and reads the JSON of its answer, unless answer is nil.
func send(ctx context.Context, method, url, authorization, kind, body string, answer any) error {
	text, err := ask(ctx, method, url, authorization, kind, body)
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// ask sends a request of HTTP and returns its answer, which is an error from status 400 on.
func ask(ctx context.Context, method, url, authorization, kind, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	// An empty value is not the absence of a header: Keycloak refuses it.
	for name, value := range map[string]string{"Content-Type": kind, "Authorization": authorization} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", method, url, response.Status, text)
	}
	return text, err
}
