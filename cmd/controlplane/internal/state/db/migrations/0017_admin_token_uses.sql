-- When each token of an administrator was used last. The tokens themselves are in a file.
CREATE TABLE admin_token_uses (
    fingerprint TEXT PRIMARY KEY,
    used_at BIGINT NOT NULL
);
