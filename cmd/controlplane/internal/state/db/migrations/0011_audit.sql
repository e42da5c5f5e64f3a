-- Who changed what, written in the transaction of the change. The first 16 characters of an
-- id are its time in nanoseconds in hexadecimal form, so that ids are in the order of time.
CREATE TABLE audit (
    id         TEXT   NOT NULL PRIMARY KEY,
    at         BIGINT NOT NULL,
    actor      TEXT   NOT NULL,
    verb       TEXT   NOT NULL,
    kind       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    outcome    TEXT   NOT NULL,
    request_id TEXT   NOT NULL
);
