package aws_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/internal/test/ec2test"
)

const (
	spotEvent = `{"version": "0", "id": "1", "detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2", "detail": {"instance-id": "i-1", "instance-action": %q}}`
	planned   = `{"detail-type": "AWS Health Event", "source": "aws.health", "detail": {"service": %q, "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", "eventTypeCategory": "scheduledChange", "statusCode": %q, "affectedEntities": [{"entityValue": "i-1"}, {"entityValue": "i-2"}]}}`
)

func TestEventsAreReadAsNotices(t *testing.T) {
	t.Parallel()
	retired := func(id string) cloud.Notice {
		return cloud.Notice{Machine: id, Reason: "its hardware is maintained (AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED)"}
	}
	for name, c := range map[string]struct {
		body string
		want []cloud.Notice
		err  string
	}{
		"spot capacity goes": {
			body: fmt.Sprintf(spotEvent, "terminate"), want: []cloud.Notice{{Machine: "i-1", Reason: "its spot capacity is taken back", Ends: true}},
		},
		"a spot machine is stopped": {
			body: fmt.Sprintf(spotEvent, "stop"), want: []cloud.Notice{{Machine: "i-1", Reason: "its spot capacity is taken back"}},
		},
		"machines are retired":     {body: fmt.Sprintf(planned, "EC2", "upcoming"), want: []cloud.Notice{retired("i-1"), retired("i-2")}},
		"they were":                {body: fmt.Sprintf(planned, "EC2", "closed")},
		"a change of another kind": {body: fmt.Sprintf(planned, "RDS", "open")},
		"an outage": {
			body: `{"detail-type": "AWS Health Event", "detail": {"service": "EC2", "eventTypeCategory": "issue", "affectedEntities": [{"entityValue": "i-1"}]}}`,
		},
		"a recommendation": {body: `{"detail-type": "EC2 Instance Rebalance Recommendation", "detail": {"instance-id": "i-1"}}`},
		"a machine without a name": {
			body: `{"detail-type": "EC2 Spot Instance Interruption Warning", "detail": {}}`, err: "EC2 Spot Instance Interruption Warning: it has no detail.instance-id",
		},
		"no JSON":  {body: "hello", err: "message is no event of EventBridge: invalid character"},
		"no event": {body: `{"a": 1}`, err: "message is no event of EventBridge: it has no detail-type"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			messages, err := (&aws.Notices{SQS: &queue{body: c.body}, URL: "q"}).Receive(t.Context())
			require.NoError(t, err)
			require.Len(t, messages, 1)
			require.Equal(t, c.want, messages[0].Notices)
			require.Equal(t, "r", messages[0].Receipt)
			if c.err == "" {
				require.NoError(t, messages[0].Err)
			} else {
				require.ErrorContains(t, messages[0].Err, c.err)
			}
		})
	}
}

// queue has one message, or fails.
type queue struct {
	body    string
	err     error
	deletes []int
}

func (q *queue) ReceiveMessage(_ context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	if in.WaitTimeSeconds != 20 || in.MaxNumberOfMessages != 10 {
		return nil, errors.New("it is to wait for up to ten messages")
	}
	return &sqs.ReceiveMessageOutput{Messages: []types.Message{{Body: &q.body, ReceiptHandle: awssdk.String("r")}}}, q.err
}

func (q *queue) DeleteMessageBatch(
	_ context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options),
) (*sqs.DeleteMessageBatchOutput, error) {
	q.deletes = append(q.deletes, len(in.Entries))
	ids := map[string]bool{}
	for _, e := range in.Entries {
		ids[*e.Id] = true
	}
	if len(ids) < len(in.Entries) {
		return nil, errors.New("the ids of entries must differ")
	}
	if len(q.deletes) == 1 && q.err != nil {
		return nil, q.err
	}
	if len(q.deletes) < 3 {
		failed := types.BatchResultErrorEntry{Code: awssdk.String("Bad"), Message: awssdk.String("too old")}
		return &sqs.DeleteMessageBatchOutput{Failed: []types.BatchResultErrorEntry{failed}}, nil
	}
	return &sqs.DeleteMessageBatchOutput{}, nil
}

func TestAQueueThatFailsIsNamed(t *testing.T) {
	t.Parallel()
	q := &queue{err: errors.New("denied")}
	n := &aws.Notices{SQS: q, URL: "https://q"}
	_, err := n.Receive(t.Context())
	require.ErrorContains(t, err, "receive messages of https://q: denied")
	err = n.Delete(t.Context(), make([]cloud.Message, 22))
	require.ErrorContains(t, err, "delete messages of https://q: denied\nBad: too old")
	require.Equal(t, []int{10, 10, 2}, q.deletes, "at most ten at a time, and all are tried")
	require.NoError(t, n.Delete(t.Context(), nil))
}

// TestNoticesComeFromAQueue has a real queue, of the emulator: what is not deleted comes again.
func TestNoticesComeFromAQueue(t *testing.T) {
	t.Parallel()
	client := sqs.NewFromConfig(config(ec2test.Start(t, ec2test.Options{})))
	made, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{
		QueueName: awssdk.String("notices"), Attributes: map[string]string{"VisibilityTimeout": "0"},
	})
	require.NoError(t, err)
	n := &aws.Notices{SQS: client, URL: *made.QueueUrl}
	_, err = client.SendMessage(t.Context(), &sqs.SendMessageInput{
		QueueUrl: made.QueueUrl, MessageBody: awssdk.String(fmt.Sprintf(spotEvent, "terminate")),
	})
	require.NoError(t, err)
	for range 2 {
		messages, err := n.Receive(t.Context())
		require.NoError(t, err)
		require.Len(t, messages, 1)
		require.Equal(t, []cloud.Notice{{Machine: "i-1", Reason: "its spot capacity is taken back", Ends: true}}, messages[0].Notices)
		if err := n.Delete(t.Context(), messages[:0]); err != nil {
			t.Fatal(err)
		}
	}
	messages, err := n.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, n.Delete(t.Context(), messages))
	left, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: made.QueueUrl})
	require.NoError(t, err)
	require.Empty(t, left.Messages)
}
