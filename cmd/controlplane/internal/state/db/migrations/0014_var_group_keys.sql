-- The ids of the keys of var groups that the replica that started last knows. A key that is not
-- among them must not encrypt: other replicas could not read what it has encrypted.
CREATE TABLE var_group_keys (id TEXT NOT NULL PRIMARY KEY);
INSERT INTO var_group_keys (id) SELECT DISTINCT key_id FROM var_group_entries;
