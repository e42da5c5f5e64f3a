-- expands
-- What the agent of a region cannot do, as it reported last (JSON, empty for nothing).
ALTER TABLE regions ADD COLUMN problems TEXT NOT NULL DEFAULT '';
