-- hierlock on MySQL and MariaDB: version 2 of the tables of part `locks`.
-- Written from the library's own statements; `hierlock provision` makes the same.

CREATE TABLE IF NOT EXISTS hier_schema_versions (
    part VARCHAR(64) NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS hier_lock_sessions (
    session BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    label VARCHAR(1000) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET ascii;

INSERT INTO hier_schema_versions (part, version) VALUES ('locks', 2) ON DUPLICATE KEY UPDATE version = GREATEST(version, 2);
