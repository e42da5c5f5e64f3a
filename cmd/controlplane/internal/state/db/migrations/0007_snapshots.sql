-- One billing record for each customer pod and period, as agents report them. They
-- outlive the cluster, the project and the service that they are about.
CREATE TABLE snapshots (
    snapshot_id  TEXT   NOT NULL PRIMARY KEY,
    cluster_id   TEXT   NOT NULL,
    workspace_id TEXT   NOT NULL,
    project_id   TEXT   NOT NULL,
    environment  TEXT   NOT NULL,
    service_id   TEXT   NOT NULL,
    pod_id       TEXT   NOT NULL,
    tier         TEXT   NOT NULL,
    phase        TEXT   NOT NULL,
    taken_at     BIGINT NOT NULL,
    cpu_millis   BIGINT NOT NULL,
    memory_bytes BIGINT NOT NULL,
    received_at  BIGINT NOT NULL
);

-- What is too old is looked for with every batch.
CREATE INDEX snapshots_taken_at ON snapshots (taken_at);
