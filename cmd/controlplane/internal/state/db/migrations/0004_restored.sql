-- What tells a restored database from the one that agents knew.

-- The epoch of the agent's start that was given last; 0 for none. A report of an
-- earlier start is refused.
ALTER TABLE regions ADD COLUMN agent_epoch BIGINT NOT NULL DEFAULT 0;

-- Part of the version of a desired state, new with each generation: a generation
-- that was lost in a restore and given again has another one.
ALTER TABLE clusters ADD COLUMN nonce TEXT NOT NULL DEFAULT '';
