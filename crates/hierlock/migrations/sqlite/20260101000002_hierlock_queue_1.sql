-- hierlock on SQLite: version 1 of the tables of part `queue`.
-- Written from the library's own statements; `hierlock queue provision` makes the same.

CREATE TABLE IF NOT EXISTS hier_schema_versions (
    part TEXT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS hier_jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    state BIGINT NOT NULL,
    priority BIGINT NOT NULL,
    due_ms BIGINT NOT NULL,
    unique_key TEXT,
    payload TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    claim BIGINT NOT NULL,
    worker TEXT,
    last_error TEXT,
    created_ms BIGINT NOT NULL
);

CREATE INDEX IF NOT EXISTS hier_jobs_claim ON hier_jobs (queue, state, priority, id);

CREATE INDEX IF NOT EXISTS hier_jobs_due ON hier_jobs (queue, state, due_ms);

CREATE UNIQUE INDEX IF NOT EXISTS hier_jobs_unique ON hier_jobs (queue, unique_key);

INSERT INTO hier_schema_versions (part, version) VALUES ('queue', 1) ON CONFLICT (part) DO UPDATE SET version = MAX(version, 1);
