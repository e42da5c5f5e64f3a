package kubetest

// For tests of what only a crash or another process brings about.
var (
	LockFile        = lockFile
	RemoveAbandoned = removeAbandoned
	WorkDir         = workDir
)

// LockName is the name of the lock in a cluster's folder.
const LockName = lockName
