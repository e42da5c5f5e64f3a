// Package usage is what was used: sums of the billing records of all clusters by UTC day, and
// the minutes that have none although pods were counted.
//
// A record that is stored is added to the sums of its day in the same transaction, so the sums
// are exact whatever comes twice, late or in another order, and outlive the records. What a
// replica of before this package has stored is added within a minute ([Maintainer]). One
// record is one pod-minute: agents take one of each pod a minute. No record is taken that is
// older than 48 hours; a day that ended before that is final.
//
// On PostgreSQL the records of each UTC day are a partition of the table snapshots, so that a day that
// is too old goes at once, without a row being looked at. Partitions are made a week ahead; snapshots_rest has
// the records of days without one, and snapshots_before those from before there were partitions. From these
// two, as on SQLite, rows are removed in slices.
//
// A minute without records is a gap if the nearest capacity reports before and after it counted
// pods ([ReasonUnrecorded]), or if there is none within two minutes ([ReasonSilent]). It is
// looked for from the first minute that is known to have a report until now, or, once the
// cluster is removed, until the last that it has sent something about. Between a report that counted pods and one that counted
// none there may have been none, so that is no gap. All these times are of the agent's clock.
package usage
