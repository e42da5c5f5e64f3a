-- expands
-- The sums of the billing records, by UTC day: what is billed, and kept when the records are
-- gone. Bytes of memory are two sums, of whole GiB and of the rest: a sum of bytes can leave
-- 64 bits.
CREATE TABLE usage_days (
    day                 BIGINT NOT NULL,
    cluster_id          TEXT   NOT NULL,
    workspace_id        TEXT   NOT NULL,
    project_id          TEXT   NOT NULL,
    environment         TEXT   NOT NULL,
    service_id          TEXT   NOT NULL,
    phase               TEXT   NOT NULL,
    pod_minutes         BIGINT NOT NULL,
    cpu_milli_minutes   BIGINT NOT NULL,
    memory_gib_minutes  BIGINT NOT NULL,
    memory_rest_minutes BIGINT NOT NULL,
    PRIMARY KEY (day, cluster_id, workspace_id, project_id, environment, service_id, phase)
);

-- One bit for each minute of an hour: whether there are billing records about it, whether
-- there is a capacity report, and whether that counted pods.
CREATE TABLE usage_hours (
    cluster_id TEXT   NOT NULL,
    hour       BIGINT NOT NULL,
    recorded   BIGINT NOT NULL,
    reported   BIGINT NOT NULL,
    populated  BIGINT NOT NULL,
    PRIMARY KEY (cluster_id, hour)
);

-- 1: the record is in the sums. Those that a program of before has stored are not, and are
-- added later.
ALTER TABLE snapshots ADD COLUMN summed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX snapshots_not_summed ON snapshots (taken_at) WHERE summed = 0;
