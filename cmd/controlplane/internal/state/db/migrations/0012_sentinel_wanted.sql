-- When what is wanted of a sentinel was changed. updated_at is also that of a report, and
-- retention must not begin anew with each of them.
ALTER TABLE sentinels ADD COLUMN wanted_at BIGINT NOT NULL DEFAULT 0;
UPDATE sentinels SET wanted_at = updated_at;
