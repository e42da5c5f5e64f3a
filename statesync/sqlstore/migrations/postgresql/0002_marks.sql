-- What a mark is sealed with, so that one that the log gave and has lost can be
-- told from one that it never gave; and when a report last began another epoch, in
-- milliseconds since 1970.
ALTER TABLE {p}scopes
	ADD COLUMN secret text NOT NULL DEFAULT replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''),
	ADD COLUMN renewed bigint NOT NULL DEFAULT 0;

ALTER TABLE {p}readers ADD COLUMN mark text NOT NULL DEFAULT '';

-- When the row was written.
ALTER TABLE {p}queue ADD COLUMN at timestamptz NOT NULL DEFAULT clock_timestamp();

-- The last version of each batch, with a number that was drawn for it.
CREATE TABLE {p}marks (
	scope text COLLATE "C" NOT NULL,
	version bigint NOT NULL,
	mark bigint NOT NULL,
	PRIMARY KEY (scope, version)
);

-- With the version the newest row of a key is the last of its entries, however
-- many dead ones a snapshot keeps before it.
ALTER TABLE {p}log DROP CONSTRAINT {p}log_pkey;
ALTER TABLE {p}log ADD PRIMARY KEY (scope, collection, id, version);
