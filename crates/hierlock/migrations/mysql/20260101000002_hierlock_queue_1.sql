-- hierlock on MySQL and MariaDB: version 1 of the tables of part `queue`.
-- Written from the library's own statements; `hierlock queue provision` makes the same.

CREATE TABLE IF NOT EXISTS hier_schema_versions (
    part VARCHAR(64) NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS hier_jobs (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue VARCHAR(64) NOT NULL,
    state BIGINT NOT NULL,
    priority BIGINT NOT NULL,
    due_ms BIGINT NOT NULL,
    unique_key VARCHAR(255),
    payload MEDIUMTEXT NOT NULL,
    attempts BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    claim BIGINT NOT NULL,
    worker VARCHAR(64),
    last_error MEDIUMTEXT,
    created_ms BIGINT NOT NULL,
    KEY hier_jobs_claim (queue, state, priority, id),
    KEY hier_jobs_due (queue, state, due_ms),
    UNIQUE KEY hier_jobs_unique (queue, unique_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT INTO hier_schema_versions (part, version) VALUES ('queue', 1) ON DUPLICATE KEY UPDATE version = GREATEST(version, 1);
