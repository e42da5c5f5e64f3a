package application

// BytesOf reads a size.
var BytesOf = bytesOf
