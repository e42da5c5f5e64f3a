-- When the holder of agent_epoch was heard last. Another start of the agent that yields takes
-- the epoch over only once it is silent.
ALTER TABLE regions ADD COLUMN epoch_heard_at BIGINT NOT NULL DEFAULT 0;
