package operator_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
)

// TestNoRequestToAWSIsWithoutALimit: a firewall that drops packets would keep its pool for good.
func TestNoRequestToAWSIsWithoutALimit(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
	cloud := operator.EC2{}
	region, err := cloud.Open(t.Context(), "eu-west-1", func(string, string, time.Duration, error) {})
	require.NoError(t, err)
	provider, ok := region.Provider.(*aws.Provider)
	require.True(t, ok)
	resolver, ok := region.Resolver.(*aws.Resolver)
	require.True(t, ok)
	notices, err := cloud.Notices(t.Context(), "eu-west-1", "https://sqs.example.com/q")
	require.NoError(t, err)
	for name, client := range map[string]any{
		"EC2": provider.EC2.Options().HTTPClient, "IAM": resolver.IAM.Options().HTTPClient,
		"SQS": notices.SQS.(*sqs.Client).Options().HTTPClient,
	} {
		limited, ok := client.(interface{ GetTimeout() time.Duration })
		require.True(t, ok, name)
		require.Equal(t, time.Minute, limited.GetTimeout(), name)
	}
}
