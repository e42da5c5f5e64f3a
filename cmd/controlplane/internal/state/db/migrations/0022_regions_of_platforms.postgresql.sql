-- expands
-- A region is unique by platform and name. scope is the region in the change log, empty for its
-- name. The views are made anew with it.
DROP VIEW IF EXISTS deployment_topology_versions;
DROP VIEW IF EXISTS sentinel_versions;
DROP VIEW IF EXISTS cilium_network_policy_versions;
ALTER TABLE regions ADD COLUMN scope TEXT NOT NULL DEFAULT '';
ALTER TABLE regions DROP CONSTRAINT regions_name_key;
ALTER TABLE regions ADD CONSTRAINT regions_platform_name_key UNIQUE (platform, name);
CREATE INDEX regions_name ON regions (name);
