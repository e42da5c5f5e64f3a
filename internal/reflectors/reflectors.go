// Package reflectors has what every user of client-go's reflectors needs.
package reflectors

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// WatchError returns the error of a watch as a reflector should get it. When a watch
// that begins with a list is refused, a reflector waits for up to a minute, whatever
// its context says. With this error it lists instead, and waits as long, or until its
// context ends. All other errors are returned as they are.
func WatchError(err error, options metav1.ListOptions) error {
	if options.SendInitialEvents != nil && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
		return errors.New(err.Error())
	}
	return err
}
