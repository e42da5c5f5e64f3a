-- Plain SQL that SQLite and PostgreSQL both take. Times are milliseconds
-- since 1970 in UTC, flags are 0 or 1, documents are JSON text.

CREATE TABLE clusters (
    id                   TEXT    NOT NULL PRIMARY KEY,
    region               TEXT    NOT NULL,
    token_hash           TEXT    NOT NULL UNIQUE,
    previous_token_hash  TEXT    NOT NULL DEFAULT '',
    previous_token_until BIGINT  NOT NULL DEFAULT 0,
    epoch                TEXT    NOT NULL,
    generation           BIGINT  NOT NULL CHECK (generation >= 1),
    lb_size_units        INTEGER NOT NULL CHECK (lb_size_units BETWEEN 1 AND 200),
    allow_mass_delete    BIGINT  NOT NULL DEFAULT 0,
    created_at           BIGINT  NOT NULL,
    last_pull_at         BIGINT  NOT NULL DEFAULT 0,
    last_pull_version    TEXT    NOT NULL DEFAULT ''
);

CREATE INDEX clusters_previous_token_hash ON clusters (previous_token_hash);

CREATE TABLE projects (
    id             TEXT    NOT NULL PRIMARY KEY,
    cluster_id     TEXT    NOT NULL REFERENCES clusters (id),
    workspace_id   TEXT    NOT NULL,
    workspace_slug TEXT    NOT NULL,
    slug           TEXT    NOT NULL,
    namespace      TEXT    NOT NULL,
    settings       TEXT    NOT NULL,
    deleted        INTEGER NOT NULL CHECK (deleted IN (0, 1)),
    generation     BIGINT  NOT NULL,
    updated_at     BIGINT  NOT NULL,
    UNIQUE (cluster_id, namespace)
);

CREATE TABLE services (
    project_id  TEXT    NOT NULL REFERENCES projects (id),
    environment TEXT    NOT NULL,
    service_id  TEXT    NOT NULL,
    spec        TEXT    NOT NULL,
    deleted     INTEGER NOT NULL CHECK (deleted IN (0, 1)),
    generation  BIGINT  NOT NULL,
    updated_at  BIGINT  NOT NULL,
    PRIMARY KEY (project_id, environment, service_id)
);

-- No reference to services: an agent also reports services that the database
-- has lost, and those reports are the ones that matter most.
CREATE TABLE service_status (
    cluster_id          TEXT    NOT NULL REFERENCES clusters (id),
    project_id          TEXT    NOT NULL,
    environment         TEXT    NOT NULL,
    service_id          TEXT    NOT NULL,
    epoch               TEXT    NOT NULL,
    generation          BIGINT  NOT NULL,
    instance_id         TEXT    NOT NULL,
    observed_generation BIGINT  NOT NULL,
    phase               TEXT    NOT NULL,
    ready               BIGINT  NOT NULL,
    desired             BIGINT  NOT NULL,
    image_digest        TEXT    NOT NULL,
    error_class         TEXT    NOT NULL,
    message             TEXT    NOT NULL,
    reported_at         BIGINT  NOT NULL,
    PRIMARY KEY (cluster_id, project_id, environment, service_id)
);
