-- hierlock on MySQL and MariaDB: version 1 of the tables of part `locks`.
-- Written from the library's own statements; `hierlock provision` makes the same.
-- The rows themselves are made by `hierlock provision`, and no client locks before that. The table is for
-- 10,000,000 buckets; leave it out to have another number of them (`hierlock provision --buckets N`).

CREATE TABLE IF NOT EXISTS hier_schema_versions (
    part VARCHAR(64) NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS hier_lock_meta (
    space VARCHAR(64) NOT NULL PRIMARY KEY,
    strategy VARCHAR(16) NOT NULL,
    buckets BIGINT NOT NULL,
    levels VARCHAR(2200) NOT NULL,
    key_version BIGINT NOT NULL,
    state VARCHAR(16) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

CREATE TABLE IF NOT EXISTS hier_lock_buckets (
    level TINYINT UNSIGNED NOT NULL,
    bucket INT UNSIGNED NOT NULL,
    of_10000000 BOOLEAN,
    PRIMARY KEY (level, bucket)
) ENGINE = InnoDB;

INSERT INTO hier_schema_versions (part, version) VALUES ('locks', 1) ON DUPLICATE KEY UPDATE version = GREATEST(version, 1);
