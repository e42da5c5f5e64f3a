-- What the agent of a cluster or region holds and wants approved, as it reported last (JSON, empty for
-- nothing), and the digest that a person has approved. They replace allow_mass_delete, which
-- is no longer read.
ALTER TABLE clusters ADD COLUMN held_deletions TEXT NOT NULL DEFAULT '';
ALTER TABLE clusters ADD COLUMN approved_deletions TEXT NOT NULL DEFAULT '';
ALTER TABLE regions ADD COLUMN held_deletions TEXT NOT NULL DEFAULT '';
ALTER TABLE regions ADD COLUMN approved_deletions TEXT NOT NULL DEFAULT '';
