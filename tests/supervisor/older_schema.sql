-- The tables of run.db in version 0.1.0, before verdicts had their figures in columns.

CREATE TABLE IF NOT EXISTS run (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    run_id TEXT NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    epoch INTEGER NOT NULL,
    created REAL NOT NULL,
    started REAL NOT NULL,
    seconds REAL NOT NULL,
    supervisor TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE IF NOT EXISTS task (
    name TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    settings BLOB NOT NULL,
    budget INTEGER NOT NULL,
    reference BLOB,
    problem TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS attempt (
    task TEXT NOT NULL REFERENCES task (name),
    number INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    kind TEXT NOT NULL,
    plan BLOB,
    candidate BLOB,
    state TEXT NOT NULL,
    PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS node (
    id INTEGER PRIMARY KEY,
    task TEXT NOT NULL REFERENCES task (name),
    number INTEGER NOT NULL,
    parent INTEGER,
    source TEXT NOT NULL,
    advice TEXT NOT NULL,
    word TEXT NOT NULL,
    verdict BLOB NOT NULL,
    score_us REAL,
    plan BLOB,
    outside TEXT NOT NULL,
    at REAL NOT NULL,
    confirmed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (task, number)
) STRICT;

CREATE TABLE IF NOT EXISTS decision (
    id INTEGER PRIMARY KEY,
    task TEXT NOT NULL,
    number INTEGER NOT NULL,
    stage TEXT NOT NULL,
    parent INTEGER NOT NULL,
    "window" TEXT NOT NULL,
    seed INTEGER NOT NULL,
    recorded INTEGER NOT NULL,
    UNIQUE (task, number, stage)
) STRICT;

CREATE TABLE IF NOT EXISTS first_look (
    task TEXT NOT NULL,
    number INTEGER NOT NULL,
    verdict BLOB NOT NULL,
    score_us REAL,
    PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS lease (
    epoch INTEGER PRIMARY KEY,
    work TEXT NOT NULL,
    slot TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    granted REAL NOT NULL,
    ended REAL,
    outcome TEXT,
    running INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS lease_open ON lease (work) WHERE ended IS NULL;
CREATE INDEX IF NOT EXISTS lease_charged ON lease (work) WHERE running = 1;

CREATE TABLE IF NOT EXISTS call (
    id INTEGER PRIMARY KEY,
    work TEXT NOT NULL,
    role TEXT NOT NULL,
    model TEXT NOT NULL,
    request TEXT NOT NULL,
    reply TEXT NOT NULL,
    stop TEXT NOT NULL,
    temperature REAL,
    effort TEXT NOT NULL DEFAULT '',
    input_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL,
    usd REAL,
    seconds REAL NOT NULL,
    at REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS call_work ON call (work);

CREATE TABLE IF NOT EXISTS reservation (
    id INTEGER PRIMARY KEY,
    incarnation TEXT NOT NULL,
    number INTEGER NOT NULL,
    work TEXT NOT NULL,
    request TEXT NOT NULL,
    role TEXT NOT NULL,
    model TEXT NOT NULL,
    usd REAL,
    state TEXT NOT NULL,
    call INTEGER,
    at REAL NOT NULL,
    UNIQUE (incarnation, number)
) STRICT;

CREATE VIEW IF NOT EXISTS spend AS
    SELECT
        substr(work, 1, instr(work, '/') - 1) AS task,
        CAST(substr(work, instr(work, '/') + 1) AS INTEGER) AS node,
        role,
        model,
        COUNT(*) AS calls,
        SUM(stop = 'lost') AS lost,
        SUM(input_tokens) AS input_tokens,
        SUM(cached_tokens) AS cached_tokens,
        SUM(cache_write_tokens) AS cache_write_tokens,
        SUM(output_tokens) AS output_tokens,
        SUM(usd) AS usd,
        SUM(usd IS NULL) AS unpriced,
        SUM(seconds) AS seconds
    FROM call
    GROUP BY 1, 2, 3, 4;

CREATE TABLE IF NOT EXISTS worker (
    slot TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    pid INTEGER NOT NULL,
    state TEXT NOT NULL,
    doing TEXT NOT NULL,
    since REAL NOT NULL,
    starts INTEGER NOT NULL,
    how TEXT NOT NULL,
    leases INTEGER NOT NULL DEFAULT 0,
    rtt_ms REAL,
    quarantine TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE IF NOT EXISTS event (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    what TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
