-- What the streaming agents of regions are to run. The wanted state of each
-- resource is kept here and its changes go through the change log, whose
-- sequencer alone gives versions.

CREATE TABLE regions (
    id                   TEXT   NOT NULL PRIMARY KEY,
    name                 TEXT   NOT NULL UNIQUE,
    platform             TEXT   NOT NULL,
    token_hash           TEXT   NOT NULL UNIQUE,
    previous_token_hash  TEXT   NOT NULL DEFAULT '',
    previous_token_until BIGINT NOT NULL DEFAULT 0,
    cell_id              TEXT   NOT NULL DEFAULT '',
    heartbeat_at         BIGINT NOT NULL DEFAULT 0,
    created_at           BIGINT NOT NULL
);

CREATE INDEX regions_previous_token_hash ON regions (previous_token_hash);

-- Which region a log was made for. A region that was lost and made anew under
-- the same name is another region, and must not pass for an empty one.
CREATE TABLE region_log (
    scope     TEXT NOT NULL PRIMARY KEY,
    region_id TEXT NOT NULL
);

CREATE TABLE deployments (
    id            TEXT   NOT NULL PRIMARY KEY,
    workspace_id  TEXT   NOT NULL,
    k8s_namespace TEXT   NOT NULL,
    k8s_name      TEXT   NOT NULL UNIQUE,
    updated_at    BIGINT NOT NULL
);

CREATE TABLE deployment_topology (
    deployment_id TEXT   NOT NULL REFERENCES deployments (id),
    region_id     TEXT   NOT NULL REFERENCES regions (id),
    workspace_id  TEXT   NOT NULL,
    desired_state TEXT   NOT NULL,
    spec          TEXT   NOT NULL,
    agent_epoch   BIGINT NOT NULL DEFAULT 0,
    sequence      BIGINT NOT NULL DEFAULT 0,
    updated_at    BIGINT NOT NULL,
    PRIMARY KEY (deployment_id, region_id)
);

CREATE TABLE sentinels (
    id                 TEXT   NOT NULL,
    region_id          TEXT   NOT NULL REFERENCES regions (id),
    k8s_namespace      TEXT   NOT NULL,
    k8s_name           TEXT   NOT NULL,
    desired_state      TEXT   NOT NULL,
    spec               TEXT   NOT NULL,
    available_replicas BIGINT NOT NULL DEFAULT 0,
    health             TEXT   NOT NULL DEFAULT 'unknown',
    agent_epoch        BIGINT NOT NULL DEFAULT 0,
    sequence           BIGINT NOT NULL DEFAULT 0,
    updated_at         BIGINT NOT NULL,
    PRIMARY KEY (id, region_id),
    UNIQUE (region_id, k8s_name)
);

CREATE TABLE cilium_network_policies (
    id            TEXT    NOT NULL,
    region_id     TEXT    NOT NULL REFERENCES regions (id),
    k8s_namespace TEXT    NOT NULL,
    k8s_name      TEXT    NOT NULL,
    policy        TEXT    NOT NULL,
    deleted       INTEGER NOT NULL CHECK (deleted IN (0, 1)),
    updated_at    BIGINT  NOT NULL,
    PRIMARY KEY (id, region_id)
);

CREATE TABLE instances (
    k8s_name       TEXT   NOT NULL,
    region_id      TEXT   NOT NULL REFERENCES regions (id),
    deployment_id  TEXT   NOT NULL,
    address        TEXT   NOT NULL,
    cpu_millicores BIGINT NOT NULL,
    memory_mib     BIGINT NOT NULL,
    status         TEXT   NOT NULL,
    reported_at    BIGINT NOT NULL,
    PRIMARY KEY (k8s_name, region_id)
);

CREATE INDEX instances_of_deployment ON instances (deployment_id, region_id);
