package podtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probes asks the probes of a container until ctx ends. It reports whether the container is to
// be started again.
func (p *pod) probes(ctx context.Context, c corev1.Container) (dead bool) {
	if c.StartupProbe != nil {
		if failed := p.until(ctx, c, c.StartupProbe, true); failed || ctx.Err() != nil {
			return failed
		}
		p.set(c.Name, func(s *corev1.ContainerStatus) {
			s.Started = new(bool)
			*s.Started, s.Ready = true, c.ReadinessProbe == nil
		})
	}
	if c.ReadinessProbe != nil {
		go p.readiness(ctx, c)
	}
	if c.LivenessProbe != nil {
		return p.until(ctx, c, c.LivenessProbe, false)
	}
	return false
}

// until asks a probe until it has failed as often as it may. With once it ends at the first
// success.
func (p *pod) until(ctx context.Context, c corev1.Container, probe *corev1.Probe, once bool) (failed bool) {
	failures := int32(0)
	for range ticks(ctx, probe) {
		switch err := p.ask(ctx, c, probe); {
		case err == nil && once:
			return false
		case err == nil:
			failures = 0
		default:
			if failures++; failures >= max(probe.FailureThreshold, 1) {
				return ctx.Err() == nil
			}
		}
	}
	return false
}

func (p *pod) readiness(ctx context.Context, c corev1.Container) {
	probe, ready, same := c.ReadinessProbe, false, int32(0)
	for range ticks(ctx, probe) {
		err := p.ask(ctx, c, probe)
		if ctx.Err() != nil {
			return
		}
		if same++; (err == nil) == ready {
			same = 0
			continue
		}
		if err == nil && same < max(probe.SuccessThreshold, 1) || err != nil && same < max(probe.FailureThreshold, 1) {
			continue
		}
		ready, same = err == nil, 0
		p.set(c.Name, func(s *corev1.ContainerStatus) { s.Ready = ready })
	}
}

// ticks yields when a probe is asked, until ctx ends.
func ticks(ctx context.Context, probe *corev1.Probe) func(yield func() bool) {
	return func(yield func() bool) {
		timer := time.NewTimer(time.Duration(probe.InitialDelaySeconds) * time.Second)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			if !yield() {
				return
			}
			timer.Reset(time.Duration(max(probe.PeriodSeconds, 1)) * time.Second)
		}
	}
}

func (p *pod) ask(ctx context.Context, c corev1.Container, probe *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	switch {
	case probe.HTTPGet != nil:
		scheme := strings.ToLower(string(probe.HTTPGet.Scheme))
		if scheme == "" {
			scheme = "http"
		}
		url := fmt.Sprintf("%s://%s%s", scheme, p.at(c, probe.HTTPGet.Port), probe.HTTPGet.Path)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		for _, h := range probe.HTTPGet.HTTPHeaders {
			request.Header.Add(h.Name, h.Value)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close() //nolint:errcheck // only its status counts
		if response.StatusCode < 200 || response.StatusCode >= 400 {
			return errors.New(response.Status)
		}
		return nil
	case probe.TCPSocket != nil:
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.at(c, probe.TCPSocket.Port))
		if err != nil {
			return err
		}
		return connection.Close()
	}
	return errors.New("a probe of this kind cannot be had here")
}

// at is where a port of a container is.
func (p *pod) at(c corev1.Container, port intstr.IntOrString) string {
	number := port.IntValue()
	for _, known := range c.Ports {
		if port.Type == intstr.String && known.Name == port.StrVal {
			number = int(known.ContainerPort)
		}
	}
	return net.JoinHostPort(p.link.address.String(), strconv.Itoa(number))
}
