-- The tables of leases and queues as the release before schema versions made them. Never changed.

CREATE TABLE IF NOT EXISTS hier_leases (
    token INTEGER PRIMARY KEY AUTOINCREMENT,
    node BLOB NOT NULL,
    path TEXT NOT NULL,
    owner TEXT NOT NULL,
    session TEXT,
    reason TEXT,
    acquired_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    ttl_ms BIGINT NOT NULL
);

CREATE INDEX IF NOT EXISTS hier_leases_node ON hier_leases (node);

CREATE INDEX IF NOT EXISTS hier_leases_owner ON hier_leases (owner);

CREATE INDEX IF NOT EXISTS hier_leases_session ON hier_leases (session);

CREATE INDEX IF NOT EXISTS hier_leases_expires_ms ON hier_leases (expires_ms);

CREATE TABLE IF NOT EXISTS hier_lease_audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    token BIGINT NOT NULL,
    path TEXT NOT NULL,
    owner TEXT NOT NULL,
    session TEXT,
    reason TEXT,
    acquired_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    why TEXT NOT NULL,
    released_ms BIGINT NOT NULL
);

CREATE INDEX IF NOT EXISTS hier_lease_audit_token ON hier_lease_audit (token);

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
