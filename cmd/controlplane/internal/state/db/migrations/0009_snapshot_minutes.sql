-- How many billing records of a cluster there are about each minute, for the status page:
-- counting the records themselves takes too long. Kept for a day.
CREATE TABLE snapshot_minutes (
    cluster_id TEXT   NOT NULL,
    minute     BIGINT NOT NULL,
    records    BIGINT NOT NULL,
    PRIMARY KEY (cluster_id, minute)
);

CREATE INDEX snapshot_minutes_minute ON snapshot_minutes (minute);
