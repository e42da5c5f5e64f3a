-- Values are encrypted by package keyring under the key key_id; what a value is about is
-- var_group_id/name. An empty environment stands for all.

CREATE TABLE var_groups (
    id          TEXT   NOT NULL PRIMARY KEY,
    project_id  TEXT   NOT NULL REFERENCES projects (id),
    name        TEXT   NOT NULL,
    environment TEXT   NOT NULL,
    checksum    TEXT   NOT NULL,
    generation  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    UNIQUE (project_id, name)
);

CREATE TABLE var_group_entries (
    var_group_id TEXT    NOT NULL REFERENCES var_groups (id),
    name         TEXT    NOT NULL,
    secret       INTEGER NOT NULL CHECK (secret IN (0, 1)),
    key_id       TEXT    NOT NULL,
    sealed       TEXT    NOT NULL,
    PRIMARY KEY (var_group_id, name)
);

CREATE INDEX var_group_entries_key_id ON var_group_entries (key_id);

CREATE TABLE service_var_groups (
    project_id   TEXT    NOT NULL,
    environment  TEXT    NOT NULL,
    service_id   TEXT    NOT NULL,
    var_group_id TEXT    NOT NULL REFERENCES var_groups (id),
    attach_order INTEGER NOT NULL,
    PRIMARY KEY (project_id, environment, service_id, var_group_id),
    FOREIGN KEY (project_id, environment, service_id) REFERENCES services (project_id, environment, service_id)
);
