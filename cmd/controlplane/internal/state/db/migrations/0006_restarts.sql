-- Why an instance is failed, and how often its containers were restarted, as the agent
-- reported it.
ALTER TABLE instances ADD COLUMN reason TEXT NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN restarts BIGINT NOT NULL DEFAULT 0;
