package starbase_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

func fields(errs []starbase.FieldError) []string {
	var names []string
	for _, err := range errs {
		names = append(names, err.Field)
	}
	return names
}

func TestACompleteServiceIsValid(t *testing.T) {
	service := fullService()
	require.Empty(t, service.Validate())
	minimal := starbase.Service{WorkspaceID: workspaceID, ProjectID: projectID, ServiceID: serviceID, Environment: "e", Image: "i"}
	require.Empty(t, minimal.Validate())
}

func TestABadServiceNamesTheFieldItsValueAndWhatIsRight(t *testing.T) {
	long := strings.Repeat("a", 64)
	for field, spoil := range map[string]func(*starbase.Service){
		"project_id":                 func(s *starbase.Service) { s.ProjectID = strings.ToUpper("a" + projectID[1:]) },
		"service_id":                 func(s *starbase.Service) { s.ServiceID = "" },
		"workspace_id":               func(s *starbase.Service) { s.WorkspaceID = "w" },
		"environment":                func(s *starbase.Service) { s.Environment = strings.Repeat("e", 40) },
		"service_name":               func(s *starbase.Service) { s.ServiceName = "9lives" },
		"tier":                       func(s *starbase.Service) { s.Tier = "no va" },
		"image":                      func(s *starbase.Service) { s.Image = "two words" },
		"replicas":                   func(s *starbase.Service) { s.Replicas = -1 },
		"env":                        func(s *starbase.Service) { s.Env = map[string]string{"A=B": "x"} },
		"env.NUL":                    func(s *starbase.Service) { s.Env = map[string]string{"NUL": "secret\x00"} },
		"ports[0].container_port":    func(s *starbase.Service) { s.Ports[0].ContainerPort = 70000 },
		"ports[1].container_port":    func(s *starbase.Service) { s.Ports[1].Protocol = "" },
		"ports[1].protocol":          func(s *starbase.Service) { s.Ports[1].Protocol = "tcp" },
		"hostname":                   func(s *starbase.Service) { s.Hostname = long + ".example.com" },
		"resources.requests.cpu":     func(s *starbase.Service) { s.Resources.Requests["cpu"] = "1 core" },
		"resources.limits":           func(s *starbase.Service) { s.Resources.Limits["Me mory"] = "1" },
		"probes.readiness.port":      func(s *starbase.Service) { s.Probes.Readiness.Port = 0 },
		"probes.liveness.path":       func(s *starbase.Service) { s.Probes.Liveness = starbase.Probe{Path: "x", Port: 1} },
		"autoscaling.max":            func(s *starbase.Service) { s.Autoscaling.Max = 0 },
		"autoscaling.min":            func(s *starbase.Service) { s.Autoscaling.Min = 0 },
		"restart_nonce":              func(s *starbase.Service) { s.RestartNonce = "now" },
		"pod_security":               func(s *starbase.Service) { s.PodSecurity = "privileged" },
		"var_groups[0].var_group_id": func(s *starbase.Service) { s.VarGroups[0].VarGroupID = "g" },
		"deployment.image_ref":       func(s *starbase.Service) { s.Deployment.ImageRef = "shop:1.2" },
		"deployment.deployed_at":     func(s *starbase.Service) { s.Deployment.DeployedAt = "yesterday" },
		"deployment.change_cause":    func(s *starbase.Service) { s.Deployment.ChangeCause = strings.Repeat("x", 2000) },
	} {
		t.Run(field, func(t *testing.T) {
			service := fullService()
			spoil(&service)
			errs := service.Validate()
			require.Equal(t, []string{field}, fields(errs), "%v", errs)
			require.NotEmpty(t, errs[0].Want)
			require.NotContains(t, errs[0].Error(), "secret")
			require.Less(t, len(errs[0].Value), 100)
		})
	}
}

func TestAHostnameIsNoAddress(t *testing.T) {
	t.Parallel()
	for hostname, valid := range map[string]bool{
		"shop.example.com": true, "shop": true, "10.example.com": true, "xn--bcher-kva.example": true, "1.2.3.4a": true,
		"10.0.0.1": false, "127.1": false, "1": false, "shop.example.1": false, "::1": false, "shop.example.com.": false,
	} {
		service := fullService()
		service.Hostname = hostname
		require.Equal(t, valid, len(service.Validate()) == 0, hostname)
	}
}

func TestEveryFaultOfAServiceIsReported(t *testing.T) {
	service := fullService()
	service.Replicas, service.Image, service.Ports[0].ContainerPort = 1001, "", 0
	require.Equal(t, []string{"image", "replicas", "ports[0].container_port"}, fields(service.Validate()))
	require.Equal(t, "replicas is 1001: want 0 to 1000", service.Validate()[1].Error())
}

func TestATombstoneNeedsOnlyItsIdentity(t *testing.T) {
	service := starbase.Service{ProjectID: projectID, ServiceID: serviceID, Environment: "e", Replicas: -1, Deleted: true}
	require.Empty(t, service.Validate())
	service.Environment = "E"
	require.Equal(t, []string{"environment"}, fields(service.Validate()))
}

func TestEnvironmentsAreBoundedInSize(t *testing.T) {
	service := fullService()
	service.Env = map[string]string{"BIG": strings.Repeat("x", 600<<10)}
	require.Equal(t, []string{"env"}, fields(service.Validate()))
}

func TestABadProjectNamesTheField(t *testing.T) {
	project := fullProject()
	require.Empty(t, project.Validate())
	for field, spoil := range map[string]func(*starbase.Project){
		"project_id":         func(p *starbase.Project) { p.ProjectID = "p" },
		"workspace_id":       func(p *starbase.Project) { p.WorkspaceID = "" },
		"slug":               func(p *starbase.Project) { p.Slug = "a" },
		"namespace":          func(p *starbase.Project) { p.Namespace = "kube-system" },
		"quota.pods":         func(p *starbase.Project) { p.Quota["pods"] = "-1" },
		"limits.default.cpu": func(p *starbase.Project) { p.Limits.Default["cpu"] = "x" },
		"egress[0].cidr":     func(p *starbase.Project) { p.Egress[0].CIDR = "203.0.113.7/24" },
		"egress[0].port":     func(p *starbase.Project) { p.Egress[0].Port = 65536 },
		"egress[0].protocol": func(p *starbase.Project) { p.Egress[0].Protocol = "ICMP" },
	} {
		t.Run(field, func(t *testing.T) {
			project := fullProject()
			spoil(&project)
			require.Equal(t, []string{field}, fields(project.Validate()))
		})
	}
}

func TestSlugsFollowTheContract(t *testing.T) {
	for slug, valid := range map[string]bool{
		"ab": true, "a-b": true, "0a": true, strings.Repeat("a", 63): true,
		"": false, "a": false, "-ab": false, "ab-": false, "aB": false, "a_b": false, "ab\n": false, strings.Repeat("a", 64): false,
	} {
		require.Equal(t, valid, starbase.ValidSlug(slug), "%q", slug)
	}
}

func TestTheLoadBalancerSizeIsBounded(t *testing.T) {
	for size, faults := range map[int]int{0: 1, 1: 0, 200: 0, 201: 1} {
		require.Len(t, starbase.ClusterConfig{LBSizeUnits: size}.Validate(), faults, "%d", size)
	}
}

func TestAServiceThatAppearsTwiceIsFound(t *testing.T) {
	one, two, three := fullService(), fullService(), fullService()
	two.Environment = "staging"
	state := starbase.DesiredState{Services: []starbase.Service{two, one, three, two, one}}
	require.Empty(t, cmp.Diff([]starbase.Identity{one.Identity(), two.Identity()}, state.Duplicates()))
	state.Services = state.Services[:2]
	require.Empty(t, state.Duplicates())
}

func TestAStatusReportIsChecked(t *testing.T) {
	good := func() starbase.StatusReport {
		return starbase.StatusReport{Epoch: "e", Generation: 1, InstanceID: "i", Services: []starbase.ServiceStatus{{
			ProjectID: "not a uuid", Environment: strings.Repeat("e", 40), ServiceID: "s", Phase: starbase.PhaseRejected,
		}}}
	}
	report := good()
	require.Empty(t, report.Validate())
	for field, spoil := range map[string]func(*starbase.StatusReport){
		"epoch":                           func(r *starbase.StatusReport) { r.Epoch = "" },
		"generation":                      func(r *starbase.StatusReport) { r.Generation = 0 },
		"instance_id":                     func(r *starbase.StatusReport) { r.InstanceID = strings.Repeat("i", 300) },
		"services[0].project_id":          func(r *starbase.StatusReport) { r.Services[0].ProjectID = "" },
		"services[0].observed_generation": func(r *starbase.StatusReport) { r.Services[0].ObservedGeneration = -1 },
		"services[0].phase":               func(r *starbase.StatusReport) { r.Services[0].Phase = "Fine" },
		"services[0].ready":               func(r *starbase.StatusReport) { r.Services[0].Ready = -1 },
		"services[0].message":             func(r *starbase.StatusReport) { r.Services[0].Message = strings.Repeat("m", 1025) },
	} {
		t.Run(field, func(t *testing.T) {
			report := good()
			spoil(&report)
			require.Equal(t, []string{field}, fields(report.Validate()))
		})
	}
}
