-- expands
-- A region is unique by platform and name. scope is the region in the change log, empty for its
-- name. The views are made anew with it.
DROP VIEW IF EXISTS deployment_topology_versions;
DROP VIEW IF EXISTS sentinel_versions;
DROP VIEW IF EXISTS cilium_network_policy_versions;

-- SQLite takes no constraint from a table: it is made again. What refers to it is checked at the
-- end.
PRAGMA defer_foreign_keys = ON;
CREATE TABLE regions_before AS SELECT * FROM regions;
DROP TABLE regions;
CREATE TABLE regions (
    id                   TEXT   NOT NULL PRIMARY KEY,
    name                 TEXT   NOT NULL,
    platform             TEXT   NOT NULL,
    scope                TEXT   NOT NULL DEFAULT '',
    token_hash           TEXT   NOT NULL UNIQUE,
    previous_token_hash  TEXT   NOT NULL DEFAULT '',
    previous_token_until BIGINT NOT NULL DEFAULT 0,
    cell_id              TEXT   NOT NULL DEFAULT '',
    heartbeat_at         BIGINT NOT NULL DEFAULT 0,
    created_at           BIGINT NOT NULL,
    agent_epoch          BIGINT NOT NULL DEFAULT 0,
    epoch_heard_at       BIGINT NOT NULL DEFAULT 0,
    held_deletions       TEXT   NOT NULL DEFAULT '',
    approved_deletions   TEXT   NOT NULL DEFAULT '',
    UNIQUE (platform, name)
);
INSERT INTO regions (id, name, platform, token_hash, previous_token_hash, previous_token_until, cell_id, heartbeat_at, created_at,
    agent_epoch, epoch_heard_at, held_deletions, approved_deletions)
SELECT id, name, platform, token_hash, previous_token_hash, previous_token_until, cell_id, heartbeat_at, created_at,
    agent_epoch, epoch_heard_at, held_deletions, approved_deletions
FROM regions_before;
DROP TABLE regions_before;
CREATE INDEX regions_previous_token_hash ON regions (previous_token_hash);
CREATE INDEX regions_name ON regions (name);
