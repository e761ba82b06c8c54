-- What the groups of one machine share. One row a group, member, partition; the generation of a claim only rises.
CREATE TABLE IF NOT EXISTS groups (
    name TEXT PRIMARY KEY, generation INTEGER NOT NULL DEFAULT 0, plan TEXT NOT NULL DEFAULT '{}',
    changes INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members (
    number INTEGER PRIMARY KEY AUTOINCREMENT, grp TEXT NOT NULL, name TEXT NOT NULL UNIQUE, about TEXT NOT NULL,
    boot TEXT NOT NULL, heard REAL NOT NULL, timeout REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS claims (
    grp TEXT NOT NULL, part TEXT NOT NULL, generation INTEGER NOT NULL, member TEXT, offset TEXT,
    PRIMARY KEY (grp, part)
) WITHOUT ROWID;
-- How often offsets were set by hand: members look at their claims again.
CREATE TABLE IF NOT EXISTS resets (grp TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
