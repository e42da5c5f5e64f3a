package clusters

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// recordTimeout bounds the write of the time of a pull. It may be dropped, so that
// it does not delay the next request.
const recordTimeout = time.Second

func (s *Server) pullDesiredState(w http.ResponseWriter, r *http.Request) error {
	clusterID := r.PathValue("cluster_id")
	version, err := s.store.Version(r.Context(), clusterID)
	if err != nil {
		return err
	}
	if matches(r.Header.Values("If-None-Match"), version) {
		w.Header().Set("ETag", strconv.Quote(version))
		w.WriteHeader(http.StatusNotModified)
		s.recordPull(r.Context(), w, clusterID, version)
		return nil
	}
	state, err := s.store.DesiredState(r.Context(), clusterID)
	if err != nil {
		return err
	}
	body, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("desired state of cluster %s: %w", clusterID, err)
	}
	if len(body) > starbase.MaxBody {
		return fmt.Errorf("desired state of cluster %s has %d bytes, agents take %d", clusterID, len(body), starbase.MaxBody)
	}
	s.bodies.set(clusterID, len(body))
	w.Header().Set("ETag", strconv.Quote(state.Version))
	if err := adminapi.WriteJSON(w, http.StatusOK, json.RawMessage(body)); err != nil {
		return err
	}
	s.recordPull(r.Context(), w, clusterID, state.Version)
	return nil
}

// recordPull flushes the answer and then stores that it was given.
func (s *Server) recordPull(ctx context.Context, w http.ResponseWriter, clusterID, version string) {
	if err := http.NewResponseController(w).Flush(); err != nil {
		s.logger.DebugContext(ctx, "answer was not sent", slog.Any("error", err))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := s.store.RecordPull(ctx, clusterID, version); err != nil {
		s.logger.DebugContext(ctx, "pull was not recorded", slog.Any("error", err))
	}
}

// matches reports whether an If-None-Match header names the version.
func matches(headers []string, version string) bool {
	want := strconv.Quote(version)
	for _, header := range headers {
		for tag := range strings.SplitSeq(header, ",") {
			if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == want {
				return true
			}
		}
	}
	return false
}

func (s *Server) postStatus(w http.ResponseWriter, r *http.Request) error {
	var report starbase.StatusReport
	// An agent may be newer than this server and send more.
	if err := adminapi.Decode(w, r, &report, false); err != nil {
		return err
	}
	if fields := report.Validate(); len(fields) > 0 {
		return adminapi.Invalid(fields...)
	}
	services, projects, err := s.store.SaveStatus(r.Context(), r.PathValue("cluster_id"), report)
	if err != nil {
		return err
	}
	s.placed.check(r.Context(), s.store, s.logger, r.PathValue("cluster_id"), report.Region)
	s.dropped.WithLabelValues("service").Add(float64(services))
	s.dropped.WithLabelValues("project").Add(float64(projects))
	w.WriteHeader(http.StatusNoContent)
	return nil
}
