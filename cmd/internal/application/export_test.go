package application

import "time"

// BytesOf reads a size.
var BytesOf = bytesOf

// SetNow lets the operator take another time for now.
func (o *Operator) SetNow(now func() time.Time) { o.now = now }
