package statesync

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

const (
	// pollWait is how long a request for a page waits, and pollAge how long until a
	// stream is tried again.
	pollWait = 5 * time.Second
	pollAge  = 30 * time.Minute
	// pollLimit is the max number of items in a page.
	pollLimit = 500
)

// polling is a Client's record of streams that a proxy holds back.
type polling struct {
	mu sync.Mutex
	// silent counts the streams in a row that went silent, a stream without a header
	// twice.
	silent int
	until  time.Time
}

// on returns whether the client polls pages instead of streams, and until when.
func (p *polling) on() (until time.Time, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until, time.Now().Before(p.until)
}

// ended records how a stream ended, and reports whether streams are in doubt.
func (p *polling) ended(silent, headed bool) (doubt bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !silent:
		p.silent = 0
	case headed:
		p.silent++
	default:
		p.silent += 2
	}
	return p.silent >= 2
}

func (p *polling) begin() (until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent, p.until = 0, time.Now().Add(pollAge)
	return p.until
}

// fallBack polls pages while streams are held back. It returns errSilent if pages do
// not arrive either.
func (c *Client) fallBack(ctx context.Context, w Watch, headed bool, receive func(Frame) error) error {
	short, cancel := context.WithTimeout(ctx, cmp.Or(c.Patience, 10*time.Second))
	defer cancel()
	if _, err := c.Page(short, w, 1, 0); err != nil && !errors.Is(err, ErrResync) {
		return because(ctx, errSilent)
	}
	until := c.polling.begin()
	if c.Logger != nil {
		c.Logger.LogAttrs(ctx, slog.LevelWarn, "streams are held back, as by a buffering proxy: polling pages instead",
			slog.String("scope", w.Scope), slog.Duration("for", pollAge))
	}
	if headed {
		// The reader has seen a header, and must open a new stream.
		return errSilent
	}
	return c.poll(ctx, w, until, receive)
}

// Polling reports whether the client polls pages, because a proxy holds streams back.
func (c *Client) Polling() bool {
	_, on := c.polling.on()
	return on
}

// poll is Watch by pages. Like a stream it ends some day, with an EndError.
func (c *Client) poll(ctx context.Context, w Watch, until time.Time, receive func(Frame) error) error {
	list, epoch := w.Cursor.Version == 0, ""
	wait := time.Duration(0)
	for {
		page, err := c.pageWithin(ctx, w, wait)
		if err != nil {
			return because(ctx, err)
		}
		at := w.Cursor.Version
		switch epoch {
		case "":
			epoch = page.Epoch
			if err := receive(
				Frame{
					Type:      FrameHeader,
					Epoch:     epoch,
					After:     at,
					Version:   at,
					Head:      page.Head,
					Heartbeat: pollWait + cmp.Or(c.Patience, 10*time.Second),
				},
			); err != nil {
				return err
			}
		case page.Epoch:
		default:
			return &ResyncError{Reason: OtherEpoch, Cursor: w.Cursor, Position: Position{Epoch: page.Epoch, Head: page.Head}}
		}
		for _, f := range framesOf(page, list) {
			if err := receive(f); err != nil {
				return err
			}
		}
		list = list && page.More
		mark := w.Cursor.Mark
		w.Cursor = page.Next()
		w.Cursor.Mark = cmp.Or(w.Cursor.Mark, mark)
		if wait = pollWait; page.More {
			wait = 0
		}
		if !page.More && time.Now().After(until) {
			return &EndError{Reason: EndOfAge}
		}
	}
}

func (c *Client) pageWithin(ctx context.Context, w Watch, wait time.Duration) (Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+cmp.Or(c.Patience, 10*time.Second))
	defer cancel()
	return c.Page(ctx, w, pollLimit, wait)
}

// framesOf converts a page into the frames of a stream.
func framesOf(page Frame, list bool) (frames []Frame) {
	f := page
	f.Floor = 0
	switch {
	case list:
		if len(page.Items) > 0 || page.Version > page.After {
			f.Type, f.Count, f.Digest, f.Mark = FrameItems, 0, Digest{}, Mark{}
			frames = append(frames, f)
		}
		if !page.More {
			frames = append(frames, Frame{
				Type: FrameSynced, Epoch: page.Epoch, After: page.Version, Version: page.Version, Head: page.Head,
				Count: page.Count, Digest: page.Digest, Mark: page.Mark,
			})
		}
		return frames
	case len(page.Items) > 0:
		f.Type = FrameChanges
	default:
		f.Type = FrameBookmark
	}
	return append(frames, f)
}
