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

INSERT INTO usage_days
SELECT taken_at - taken_at % 86400000, cluster_id, workspace_id, project_id, environment, service_id, phase,
    count(*), sum(cpu_millis), sum(memory_bytes / 1073741824), sum(memory_bytes % 1073741824)
FROM snapshots
GROUP BY 1, 2, 3, 4, 5, 6, 7;

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

INSERT INTO usage_hours
SELECT cluster_id, taken_at - taken_at % 3600000,
    sum(DISTINCT CAST(1 AS BIGINT) << CAST(taken_at / 60000 % 60 AS INTEGER)), 0, 0
FROM snapshots
GROUP BY 1, 2;

INSERT INTO usage_hours
SELECT cluster_id, taken_at - taken_at % 3600000, 0,
    sum(DISTINCT CAST(1 AS BIGINT) << CAST(taken_at / 60000 % 60 AS INTEGER)),
    sum(DISTINCT CASE WHEN current_pod_count > 0 THEN CAST(1 AS BIGINT) << CAST(taken_at / 60000 % 60 AS INTEGER) ELSE 0 END)
FROM capacity_reports
WHERE TRUE
GROUP BY 1, 2
ON CONFLICT (cluster_id, hour) DO UPDATE SET reported = excluded.reported, populated = excluded.populated;
