package db

import "io/fs"

// Knowing returns c for a program with other migrations, in the folder migrations of files.
func (c SQLite) Knowing(files fs.FS) SQLite {
	c.migrations = files
	return c
}

// Knowing returns c for a program with other migrations, in the folder migrations of files.
func (c PostgreSQL) Knowing(files fs.FS) PostgreSQL {
	c.migrations = files
	return c
}

// Migrations are what this program has.
func Migrations() fs.FS { return migrations }
