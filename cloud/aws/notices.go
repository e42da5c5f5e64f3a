package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// Notices are the messages of a queue of SQS that EventBridge writes: "EC2 Spot Instance
// Interruption Warning", and the "AWS Health Event" of a scheduled change, such as a retirement.
// Others are of no interest. It implements [cloud.Notices].
//
// The queue is for one cluster: what is read is deleted. Who may write to it has machines drained.
type Notices struct {
	// SQS has ReceiveMessage and DeleteMessageBatch. Required.
	SQS interface {
		ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
		DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	}
	// URL of the queue. Required.
	URL string
}

const (
	mostMessages = 10 // of one call, as SQS has it
	receiveWait  = 20 // seconds, as SQS has it
)

// Receive implements [cloud.Notices]: it waits for 20 s.
func (n *Notices) Receive(ctx context.Context) ([]cloud.Message, error) {
	out, err := n.SQS.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: aws.String(n.URL), MaxNumberOfMessages: mostMessages, WaitTimeSeconds: receiveWait,
	})
	if err != nil {
		return nil, fmt.Errorf("receive messages of %s: %w", n.URL, err)
	}
	messages := make([]cloud.Message, 0, len(out.Messages))
	for _, m := range out.Messages {
		message := cloud.Message{Receipt: aws.ToString(m.ReceiptHandle)}
		message.Notices, message.Err = parseEvent(aws.ToString(m.Body))
		messages = append(messages, message)
	}
	return messages, nil
}

// Delete implements [cloud.Notices].
func (n *Notices) Delete(ctx context.Context, messages []cloud.Message) error {
	var errs []error
	for len(messages) > 0 {
		batch := messages[:min(mostMessages, len(messages))]
		messages = messages[len(batch):]
		in := &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(n.URL)}
		for i, m := range batch {
			in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{
				Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(m.Receipt),
			})
		}
		out, err := n.SQS.DeleteMessageBatch(ctx, in)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, failed := range out.Failed {
			errs = append(errs, errors.New(aws.ToString(failed.Code)+": "+aws.ToString(failed.Message)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete messages of %s: %w", n.URL, err)
	}
	return nil
}

// event is the part of an event of EventBridge that is read.
type event struct {
	DetailType string `json:"detail-type"`
	Detail     struct {
		InstanceID     string `json:"instance-id"`
		InstanceAction string `json:"instance-action"`

		Service           string `json:"service"`
		EventTypeCode     string `json:"eventTypeCode"`
		EventTypeCategory string `json:"eventTypeCategory"`
		StatusCode        string `json:"statusCode"`
		AffectedEntities  []struct {
			EntityValue string `json:"entityValue"`
		} `json:"affectedEntities"`
	} `json:"detail"`
}

// parseEvent returns what an event announces; nothing for events of other types.
func parseEvent(body string) ([]cloud.Notice, error) {
	var e event
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		return nil, fmt.Errorf("message is no event of EventBridge: %w", err)
	}
	d := &e.Detail
	switch {
	case e.DetailType == "":
		return nil, errors.New("message is no event of EventBridge: it has no detail-type")
	case e.DetailType == "EC2 Spot Instance Interruption Warning" && d.InstanceID == "":
		return nil, errors.New(e.DetailType + ": it has no detail.instance-id")
	case e.DetailType == "EC2 Spot Instance Interruption Warning":
		// Else it is stopped or hibernated.
		return []cloud.Notice{{Machine: d.InstanceID, Reason: "its spot capacity is taken back", Ends: d.InstanceAction == "terminate"}}, nil
	case e.DetailType == "AWS Health Event" && d.Service == "EC2" && d.EventTypeCategory == "scheduledChange" && d.StatusCode != "closed":
		var all []cloud.Notice
		for _, entity := range d.AffectedEntities {
			all = append(all, cloud.Notice{Machine: entity.EntityValue, Reason: "its hardware is maintained (" + d.EventTypeCode + ")"})
		}
		return all, nil
	}
	return nil, nil
}
