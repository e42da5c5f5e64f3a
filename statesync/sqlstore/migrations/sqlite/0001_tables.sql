-- One row: its lock is what makes a sequencer the only one.
CREATE TABLE {p}meta (
	one INTEGER PRIMARY KEY CHECK (one = 1),
	batches INTEGER NOT NULL DEFAULT 0,
	origin TEXT NOT NULL DEFAULT ''
) STRICT;
INSERT INTO {p}meta (one) VALUES (1);

CREATE TABLE {p}scopes (
	scope TEXT PRIMARY KEY,
	epoch TEXT NOT NULL,
	floor INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Changes that are committed but have no version yet. A row without a
-- collection only asks for its scope.
CREATE TABLE {p}queue (
	seq INTEGER PRIMARY KEY,
	scope TEXT NOT NULL,
	collection TEXT NOT NULL,
	id TEXT NOT NULL,
	deleted INTEGER NOT NULL,
	value BLOB
) STRICT;

-- The newest state of each key. The head of a scope is its greatest version.
CREATE TABLE {p}log (
	scope TEXT NOT NULL,
	collection TEXT NOT NULL,
	id TEXT NOT NULL,
	version INTEGER NOT NULL,
	deleted INTEGER NOT NULL,
	value BLOB,
	at INTEGER NOT NULL, -- milliseconds since 1970
	PRIMARY KEY (scope, collection, id)
) STRICT;
CREATE UNIQUE INDEX {p}log_version ON {p}log (scope, version);
CREATE INDEX {p}log_deleted ON {p}log (scope, version) WHERE deleted;

CREATE TABLE {p}readers (
	scope TEXT NOT NULL,
	reader TEXT NOT NULL,
	session INTEGER NOT NULL,
	sequence INTEGER NOT NULL,
	epoch TEXT NOT NULL,
	version INTEGER NOT NULL,
	body BLOB,
	at INTEGER NOT NULL,
	PRIMARY KEY (scope, reader)
) STRICT, WITHOUT ROWID;
