-- expands
-- The hostname of a service, empty for none: on a cluster one service has it.
ALTER TABLE services ADD COLUMN hostname TEXT NOT NULL DEFAULT '';
UPDATE services SET hostname = coalesce(spec::json ->> 'hostname', '') WHERE deleted = 0;
CREATE INDEX services_by_hostname ON services (hostname) WHERE hostname <> '';
