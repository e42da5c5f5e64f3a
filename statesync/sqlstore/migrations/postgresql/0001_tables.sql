-- One row: its lock is what makes a sequencer the only one.
CREATE TABLE {p}meta (
	one integer PRIMARY KEY CHECK (one = 1),
	origin text NOT NULL DEFAULT ''
);
INSERT INTO {p}meta (one) VALUES (1);

CREATE TABLE {p}scopes (
	scope text COLLATE "C" PRIMARY KEY,
	epoch text NOT NULL,
	floor bigint NOT NULL DEFAULT 0
);

-- Changes that are committed but have no version yet. A row without a
-- collection only asks for its scope. The cache of the sequence must stay 1: a
-- session that keeps numbers in stock would use them out of order.
CREATE SEQUENCE {p}queue_seq AS bigint CACHE 1;
CREATE TABLE {p}queue (
	seq bigint NOT NULL DEFAULT nextval('{p}queue_seq'),
	scope text COLLATE "C" NOT NULL,
	collection text COLLATE "C" NOT NULL,
	id text COLLATE "C" NOT NULL,
	deleted boolean NOT NULL,
	value bytea,
	-- The transaction that wrote the row. What a snapshot did not show is of one
	-- that it names as unfinished, or of a later one: so nothing that was moved is
	-- looked at again, however long its dead rows stay.
	tx bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint
);
CREATE INDEX {p}queue_tx ON {p}queue (tx);

-- The newest state of each key. The head of a scope is its greatest version.
CREATE TABLE {p}log (
	scope text COLLATE "C" NOT NULL,
	collection text COLLATE "C" NOT NULL,
	id text COLLATE "C" NOT NULL,
	version bigint NOT NULL,
	deleted boolean NOT NULL,
	value bytea,
	at bigint NOT NULL, -- milliseconds since 1970
	PRIMARY KEY (scope, collection, id)
);
CREATE UNIQUE INDEX {p}log_version ON {p}log (scope, version);
CREATE INDEX {p}log_deleted ON {p}log (scope, version) WHERE deleted;

CREATE TABLE {p}readers (
	scope text COLLATE "C" NOT NULL,
	reader text COLLATE "C" NOT NULL,
	session bigint NOT NULL,
	sequence bigint NOT NULL,
	epoch text NOT NULL,
	version bigint NOT NULL,
	body bytea,
	at bigint NOT NULL,
	PRIMARY KEY (scope, reader)
);
