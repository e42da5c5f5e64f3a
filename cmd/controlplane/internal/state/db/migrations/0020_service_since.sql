-- expands
-- Since when the agent reports the phase and the error class of a service. Zero: unknown.
ALTER TABLE service_status ADD COLUMN since BIGINT NOT NULL DEFAULT 0;
