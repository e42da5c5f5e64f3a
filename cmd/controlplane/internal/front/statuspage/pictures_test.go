package statuspage_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPicturesOfThePage draws the pictures of the documentation into the folder of TRUEUP_PICTURES, which
// "make pictures" sets: three clusters and a region, with what needs a look in one of them.
//
//nolint:paralleltest // a browser, see e2e_test.go
func TestPicturesOfThePage(t *testing.T) {
	folder := os.Getenv("TRUEUP_PICTURES")
	if folder == "" {
		t.Skip("is the program of make pictures")
	}
	needBrowser(t)
	s := &site{t: t, url: "http://" + program(t, "--listen", "127.0.0.1:0"), tokens: map[string]string{}}
	healthy := [3]string{"Healthy"}
	names := []string{"web", "cart", "search", "mail", "stock", "prices"}
	for clusterID, region := range map[string]string{clusterA: "nyc3", clusterB: "fra1", clusterC: "sgp1"} {
		s.register(clusterID, region, 0)
		phases := make([][3]string, len(names))
		for n, name := range names {
			phases[n] = healthy
			s.admin("PUT", servicePath(clusterID, n), map[string]any{
				"image": "registry.example.com/shop/" + name + ":4.2", "replicas": 3, "service_name": name,
			})
		}
		if clusterID == clusterB {
			phases[3] = [3]string{"Failed", "RolloutStuck", "2 of 3 pods wait for an image that cannot be pulled: mail:4.2"}
			phases[4] = [3]string{"Progressing"}
		}
		s.report(clusterID, phases...)
	}
	s.tokens["eu"], _ = s.admin("PUT", "regions/reg_eu", map[string]any{"name": "eu-1", "platform": "aws"})["token"].(string)
	s.call("POST", "/ctrl.v1.ClusterService/Heartbeat", s.tokens["eu"], map[string]any{})
	for hours := 24; hours >= 0; hours-- {
		at := time.Now().Add(-time.Duration(hours) * time.Hour)
		s.capacity(clusterA, 300+hours%5*20, at)
		s.capacity(clusterB, 640-hours*9, at)
		s.capacity(clusterC, 120+hours, at)
	}
	for minutes := 50; minutes >= 1; minutes-- {
		at := time.Now().Truncate(time.Minute).Add(-time.Duration(minutes) * time.Minute)
		for clusterID, pods := range map[string]int{clusterA: 300, clusterB: 640, clusterC: 120} {
			s.bill(clusterID, pods, at)
		}
	}
	browse(t, "pictures.js", "STATUS_URL="+s.url, "STATUS_TOKEN="+adminToken, "STATUS_PICTURES="+folder)
	for _, name := range []string{"status-light.png", "status-dark.png", "status-phone.png"} {
		require.FileExists(t, folder+"/"+name)
	}
}
