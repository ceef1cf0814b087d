-- hierlock on MySQL and MariaDB: version 1 of the tables of part `lease`.
-- Written from the library's own statements; `hierlock lease provision` makes the same.

CREATE TABLE IF NOT EXISTS hier_schema_versions (
    part VARCHAR(64) NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS hier_leases (
    token BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    node VARBINARY(2100) NOT NULL,
    path VARCHAR(6200) NOT NULL,
    owner VARCHAR(255) NOT NULL,
    session VARCHAR(255),
    reason VARCHAR(255),
    acquired_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    ttl_ms BIGINT NOT NULL,
    INDEX (node),
    INDEX (owner),
    INDEX (session),
    INDEX (expires_ms)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS hier_lease_audit (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    token BIGINT NOT NULL,
    path VARCHAR(6200) NOT NULL,
    owner VARCHAR(255) NOT NULL,
    session VARCHAR(255),
    reason VARCHAR(255),
    acquired_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    actor VARCHAR(255) NOT NULL,
    why VARCHAR(255) NOT NULL,
    released_ms BIGINT NOT NULL,
    INDEX (token)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `hier_lease_slots` (
    level TINYINT UNSIGNED NOT NULL,
    bucket INT UNSIGNED NOT NULL,
    of_256 BOOLEAN,
    PRIMARY KEY (level, bucket)
) ENGINE = InnoDB;

INSERT IGNORE INTO hier_lease_slots (level, bucket) WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 255) SELECT levels.n, buckets.n FROM numbers levels, numbers buckets WHERE levels.n < 8 ORDER BY levels.n, buckets.n;

INSERT INTO hier_schema_versions (part, version) VALUES ('lease', 1) ON DUPLICATE KEY UPDATE version = GREATEST(version, 1);
