-- Rows of wanted state that vanished and were withdrawn from the log of their region,
-- of the time in which their number is limited.
CREATE TABLE withdrawals (
    region_id    TEXT   NOT NULL REFERENCES regions (id),
    collection   TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    withdrawn_at BIGINT NOT NULL,
    PRIMARY KEY (region_id, collection, id)
);
