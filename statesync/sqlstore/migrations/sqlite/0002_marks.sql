-- What a mark is sealed with, so that one that the log gave and has lost can be
-- told from one that it never gave; and when a report last began another epoch, in
-- milliseconds since 1970.
ALTER TABLE {p}scopes ADD COLUMN secret TEXT NOT NULL DEFAULT '';
UPDATE {p}scopes SET secret = lower(hex(randomblob(32)));
ALTER TABLE {p}scopes ADD COLUMN renewed INTEGER NOT NULL DEFAULT 0;

ALTER TABLE {p}readers ADD COLUMN mark TEXT NOT NULL DEFAULT '';

-- The queue with the time at which each row was written, in milliseconds since
-- 1970.
ALTER TABLE {p}queue RENAME TO {p}queue_1;
CREATE TABLE {p}queue (
	seq INTEGER PRIMARY KEY,
	scope TEXT NOT NULL,
	collection TEXT NOT NULL,
	id TEXT NOT NULL,
	deleted INTEGER NOT NULL,
	value BLOB,
	at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
) STRICT;
INSERT INTO {p}queue (seq, scope, collection, id, deleted, value) SELECT seq, scope, collection, id, deleted, value FROM {p}queue_1;
DROP TABLE {p}queue_1;

-- The last version of each batch, with a number that was drawn for it.
CREATE TABLE {p}marks (
	scope TEXT NOT NULL,
	version INTEGER NOT NULL,
	mark INTEGER NOT NULL,
	PRIMARY KEY (scope, version)
) STRICT, WITHOUT ROWID;
