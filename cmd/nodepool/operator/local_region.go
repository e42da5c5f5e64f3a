package operator

// LocalCloud begins the providerIDs of local machines.
const LocalCloud = "local"

// LocalRegion is the region of local machines whose class names none.
const LocalRegion = "local-1"

// Local opens regions whose machines are processes of this machine. Each has one zone.
type Local struct {
	// Dir is the folder of the machines, with a folder for each region.
	Dir string
	// Command is the program that a machine runs, with the words and quotes of /bin/sh.
	Command string
}
