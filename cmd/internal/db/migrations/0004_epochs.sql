-- The epoch of the agent's start that was given last; 0 for none. A report of an
-- earlier start is refused.
ALTER TABLE regions ADD COLUMN agent_epoch BIGINT NOT NULL DEFAULT 0;
