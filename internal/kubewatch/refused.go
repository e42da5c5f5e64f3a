package kubewatch

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// refusal returns the error of a watch as a reflector must get it. When a watch that
// begins with a list is refused, a reflector waits for up to a minute, whatever its
// context says. With this error it lists instead, and ends with its context. All other
// errors are returned as they are.
func refusal(err error, options metav1.ListOptions) error {
	if options.SendInitialEvents != nil && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
		return errors.New(err.Error())
	}
	return err
}
