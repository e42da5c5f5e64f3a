-- Why the configuration of a cluster is not in effect, as its agent reported last.
ALTER TABLE clusters ADD COLUMN reported_error_class TEXT NOT NULL DEFAULT '';
ALTER TABLE clusters ADD COLUMN reported_message TEXT NOT NULL DEFAULT '';
