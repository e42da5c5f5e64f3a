-- What the status page shows beside what is there already.

-- The newest report that an agent sent, whatever it had to say: one that has
-- nothing left to run has nothing to say of any service.
ALTER TABLE clusters ADD COLUMN reported_epoch TEXT NOT NULL DEFAULT '';
ALTER TABLE clusters ADD COLUMN reported_generation BIGINT NOT NULL DEFAULT 0;
ALTER TABLE clusters ADD COLUMN reported_at BIGINT NOT NULL DEFAULT 0;

UPDATE clusters SET
    reported_epoch = epoch,
    reported_generation = (SELECT max(s.generation) FROM service_status s WHERE s.cluster_id = clusters.id AND s.epoch = clusters.epoch),
    reported_at = (SELECT max(s.reported_at) FROM service_status s WHERE s.cluster_id = clusters.id AND s.epoch = clusters.epoch)
WHERE EXISTS (SELECT 1 FROM service_status s WHERE s.cluster_id = clusters.id AND s.epoch = clusters.epoch);

CREATE TABLE capacity_reports (
    cluster_id        TEXT   NOT NULL REFERENCES clusters (id),
    taken_at          BIGINT NOT NULL,
    current_pod_count BIGINT NOT NULL,
    soft_limit        BIGINT NOT NULL,
    PRIMARY KEY (cluster_id, taken_at)
);

-- Who is logged in to the status page. Of the secret in a cookie only a keyed
-- hash is kept.
CREATE TABLE status_sessions (
    id         TEXT   NOT NULL PRIMARY KEY,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
