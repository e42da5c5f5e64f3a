package database

// Literal and CheckName are what statements are quoted and checked with.
var (
	Literal    = literal
	Identifier = identifier
	CheckName  = checkName
)
