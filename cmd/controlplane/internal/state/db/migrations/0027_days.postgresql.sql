-- expands
-- The billing records by day: a day that is too old goes as one table, which no row is looked at
-- for. The id of a record is made of its time, among others, so that its id alone identifies it as
-- before. Records of before stay together in one table, which takes those of today and tomorrow;
-- building the index of its key takes about a minute for ten million. The last partition has what
-- is of no day that there is a table for. The program makes those of the next days.
ALTER TABLE snapshots RENAME TO snapshots_before;
ALTER TABLE snapshots_before DROP CONSTRAINT snapshots_pkey;
ALTER TABLE snapshots_before ADD PRIMARY KEY (snapshot_id, taken_at);
ALTER INDEX snapshots_taken_at RENAME TO snapshots_before_taken_at;
ALTER INDEX snapshots_not_summed RENAME TO snapshots_before_not_summed;
CREATE TABLE snapshots (LIKE snapshots_before INCLUDING DEFAULTS, PRIMARY KEY (snapshot_id, taken_at)) PARTITION BY RANGE (taken_at);
CREATE INDEX snapshots_taken_at ON snapshots (taken_at);
CREATE INDEX snapshots_not_summed ON snapshots (taken_at) WHERE summed = 0;
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM snapshots_before) THEN
        EXECUTE format('ALTER TABLE snapshots ATTACH PARTITION snapshots_before FOR VALUES FROM (MINVALUE) TO (%s)',
            ((extract(epoch FROM now())::bigint / 86400) + 2) * 86400000);
    ELSE
        DROP TABLE snapshots_before;
    END IF;
END $$;
CREATE TABLE snapshots_rest PARTITION OF snapshots DEFAULT;
