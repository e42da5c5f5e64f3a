-- What agents do, what is read, and what is refused have logs of their own, so that none of
-- it can push out what was changed. source is the address that the request came from.
ALTER TABLE audit ADD COLUMN log TEXT NOT NULL DEFAULT 'changes';
ALTER TABLE audit ADD COLUMN source TEXT NOT NULL DEFAULT '';
UPDATE audit SET log = 'agents' WHERE actor LIKE 'region/%' OR actor LIKE 'cluster/%' OR actor = 'shared-agent-token';
UPDATE audit SET log = 'access' WHERE kind = 'session';
CREATE INDEX audit_log ON audit (log, id);
