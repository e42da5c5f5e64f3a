// Package sqlstore is the place of the change log on database/sql, for SQLite
// and PostgreSQL. It is a
// module of its own so that only its users will download a SQL driver.
package sqlstore
