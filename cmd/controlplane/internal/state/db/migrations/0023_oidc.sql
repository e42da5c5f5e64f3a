-- expands

-- Sessions of people who have signed in with OpenID Connect: who they are, and their groups then,
-- as a JSON list. Sessions of tokens have the defaults.
ALTER TABLE status_sessions ADD COLUMN issuer TEXT NOT NULL DEFAULT '';
ALTER TABLE status_sessions ADD COLUMN subject TEXT NOT NULL DEFAULT '';
ALTER TABLE status_sessions ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE status_sessions ADD COLUMN member_of TEXT NOT NULL DEFAULT '[]';

-- The same of the first of two people, whose rights are looked at again when the second asks.
ALTER TABLE second_person ADD COLUMN issuer TEXT NOT NULL DEFAULT '';
ALTER TABLE second_person ADD COLUMN subject TEXT NOT NULL DEFAULT '';
ALTER TABLE second_person ADD COLUMN member_of TEXT NOT NULL DEFAULT '[]';
