-- hierlock on PostgreSQL: version 1 of the tables of part `locks`.
-- Written from the library's own statements; `hierlock provision` makes the same.
-- Only for URLs with `?strategy=striped`: without that PostgreSQL needs no tables for locks. The rows
-- themselves are made by `hierlock provision`. The table is for 10,000,000 buckets; leave it out to have
-- another number of them (`hierlock provision --buckets N`).

CREATE TABLE IF NOT EXISTS hier_schema_versions (
    part TEXT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS hier_lock_meta (
    space VARCHAR(64) NOT NULL PRIMARY KEY,
    strategy VARCHAR(16) NOT NULL,
    buckets BIGINT NOT NULL,
    levels VARCHAR(2200) NOT NULL,
    key_version BIGINT NOT NULL,
    state VARCHAR(16) NOT NULL
);

CREATE TABLE IF NOT EXISTS hier_lock_buckets (
    level SMALLINT NOT NULL,
    bucket INT NOT NULL,
    of_10000000 BOOLEAN,
    PRIMARY KEY (level, bucket)
);

INSERT INTO hier_schema_versions (part, version) VALUES ('locks', 1) ON CONFLICT (part) DO UPDATE SET version = GREATEST(hier_schema_versions.version, 1);
