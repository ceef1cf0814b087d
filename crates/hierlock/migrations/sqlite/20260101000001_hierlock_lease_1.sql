-- hierlock on SQLite: version 1 of the tables of part `lease`.
-- Written from the library's own statements; `hierlock lease provision` makes the same.

CREATE TABLE IF NOT EXISTS hier_schema_versions (
    part TEXT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
);

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

INSERT INTO hier_schema_versions (part, version) VALUES ('lease', 1) ON CONFLICT (part) DO UPDATE SET version = MAX(version, 1);
