-- expands
-- What the lists of clusters and regions on the status page read of their services and objects.
CREATE INDEX service_status_unwell ON service_status (cluster_id) WHERE phase <> 'Healthy';
CREATE INDEX instances_failed ON instances (region_id) WHERE status = 'failed';
CREATE INDEX sentinels_unhealthy ON sentinels (region_id) WHERE health = 'unhealthy';
CREATE INDEX deployment_topology_of_region ON deployment_topology (region_id, deployment_id);
CREATE INDEX cilium_network_policies_of_region ON cilium_network_policies (region_id, id);
