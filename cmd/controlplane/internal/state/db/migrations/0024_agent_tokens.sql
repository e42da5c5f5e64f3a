-- expands
-- Tokens of agents end (0: never), and have a successor from its renewal until its first use. Both
-- count only for the token with the hash terms_of: an older version of this program, which rotates a
-- token, leaves them as they are.
ALTER TABLE clusters ADD COLUMN token_until BIGINT NOT NULL DEFAULT 0;
ALTER TABLE clusters ADD COLUMN next_token_hash TEXT NOT NULL DEFAULT '';
ALTER TABLE clusters ADD COLUMN next_token_until BIGINT NOT NULL DEFAULT 0;
ALTER TABLE clusters ADD COLUMN terms_of TEXT NOT NULL DEFAULT '';
CREATE INDEX clusters_next_token_hash ON clusters (next_token_hash);
ALTER TABLE regions ADD COLUMN token_until BIGINT NOT NULL DEFAULT 0;
ALTER TABLE regions ADD COLUMN next_token_hash TEXT NOT NULL DEFAULT '';
ALTER TABLE regions ADD COLUMN next_token_until BIGINT NOT NULL DEFAULT 0;
ALTER TABLE regions ADD COLUMN terms_of TEXT NOT NULL DEFAULT '';
CREATE INDEX regions_next_token_hash ON regions (next_token_hash);
