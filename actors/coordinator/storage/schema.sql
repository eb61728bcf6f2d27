-- The store of one run.  Only its coordinator writes it; all other processes open it read-only.
-- A new column is null or has a default: it is added to the tables of older runs when they resume.

CREATE TABLE IF NOT EXISTS run (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    run_id TEXT NOT NULL,
    status TEXT NOT NULL,          -- running, draining, finished, stopped, blocked, refused
    reason TEXT NOT NULL DEFAULT '',
    epoch INTEGER NOT NULL,        -- coordinators that have served this run
    created REAL NOT NULL,         -- wall clock, seconds since 1970, for people only
    started REAL NOT NULL,         -- when the present coordinator began
    seconds REAL NOT NULL,         -- that any coordinator served it
    supervisor TEXT NOT NULL DEFAULT '', -- incarnation of the one that started this coordinator
    paused INTEGER NOT NULL DEFAULT 0,   -- 1: a person paused it, and nothing is leased
    finishing INTEGER NOT NULL DEFAULT 0, -- 1: a person has it end with what is under way
    max_cost REAL,                 -- --max-cost at the last start; null: none
    cap_usd REAL                   -- the cap in force: --max-cost, or a person's later one; null: none
) STRICT;

CREATE TABLE IF NOT EXISTS task (
    name TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    settings BLOB NOT NULL,        -- msgpack protocol.values.Task
    budget INTEGER NOT NULL,
    reference BLOB,                -- msgpack protocol.values.Reference, once measured
    problem TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL,          -- new, measured, finished, refused
    named_budget INTEGER,          -- --budget at the last start; `budget` may be a person's later one
    eager_us REAL,                 -- this and the following columns: the reference's figures again
    compile_us REAL,
    max_autotune_us REAL,
    device_name TEXT
) STRICT;

CREATE TABLE IF NOT EXISTS attempt (
    task TEXT NOT NULL REFERENCES task (name),
    number INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    kind TEXT NOT NULL,            -- improve, repair, inject (its source is a person's)
    plan BLOB,                     -- msgpack protocol.values.Plan
    candidate BLOB,                -- msgpack protocol.values.Candidate
    state TEXT NOT NULL,           -- a stage of actors/coordinator/search/attempt_stages.py, or done
    advice TEXT NOT NULL DEFAULT '', -- the plan's
    failed BLOB,                   -- msgpack protocol.values.FailedCandidate: its agent mended it
    PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;
-- A row's state comes after its plan and candidate, which a reader of all states need not read.
CREATE INDEX IF NOT EXISTS attempt_under_way ON attempt (state) WHERE state != 'done';

CREATE TABLE IF NOT EXISTS node (
    id INTEGER PRIMARY KEY,        -- the order in which nodes were recorded
    task TEXT NOT NULL REFERENCES task (name),
    number INTEGER NOT NULL,       -- 0 is the root; otherwise its attempt's number
    parent INTEGER,
    source TEXT NOT NULL,
    advice TEXT NOT NULL,
    word TEXT NOT NULL,
    verdict BLOB NOT NULL,         -- msgpack protocol.values.Verdict
    score_us REAL,                 -- null: not correct
    plan BLOB,
    outside TEXT NOT NULL,         -- JSON list of diff hunks outside the anchors
    at REAL NOT NULL,
    confirmed INTEGER NOT NULL DEFAULT 0, -- 1: verdict and score are of the longer, second look; 2: it could not be had
    pinned INTEGER NOT NULL DEFAULT 0,    -- 1: by a person
    pruned INTEGER NOT NULL DEFAULT 0,    -- how many nodes that a person pruned are above it, or it
    reason TEXT,                   -- from here on the verdict's figures again, for sqlite3 and the views
    failed_in TEXT,                -- the stage that decided; '' of a correct one
    speedup REAL,
    low REAL,                      -- the 95 % interval of the speed-up
    high REAL,
    median_us REAL,                -- as measured; score_us is on the clock of the task's reference
    reference_us REAL,             -- measured in turn with it
    max_error REAL,
    build_s REAL,
    check_s REAL,
    timing_s REAL,
    labels TEXT,
    sandbox_level INTEGER,
    device TEXT,
    UNIQUE (task, number)
) STRICT;

-- What the search decided, in its order: a restarted coordinator offers the same again, and
-- scripts/replay.py holds it against the search.
CREATE TABLE IF NOT EXISTS decision (
    id INTEGER PRIMARY KEY,
    task TEXT NOT NULL,
    number INTEGER NOT NULL,       -- the attempt
    stage TEXT NOT NULL,
    parent INTEGER NOT NULL,
    "window" TEXT NOT NULL,        -- JSON list of nodes
    seed INTEGER NOT NULL,
    recorded INTEGER NOT NULL,     -- nodes of the task that there were by then, less the root
    UNIQUE (task, number, stage)
) STRICT;

-- What a node came to before it was judged again: the search went by that until then.
CREATE TABLE IF NOT EXISTS first_look (
    task TEXT NOT NULL,
    number INTEGER NOT NULL,
    verdict BLOB NOT NULL,         -- msgpack protocol.values.Verdict
    score_us REAL,                 -- null: not correct
    word TEXT,                     -- this and the following columns: as in `node`
    reason TEXT,
    failed_in TEXT,
    speedup REAL,
    low REAL,
    high REAL,
    median_us REAL,
    reference_us REAL,
    max_error REAL,
    build_s REAL,
    check_s REAL,
    timing_s REAL,
    labels TEXT,
    sandbox_level INTEGER,
    device TEXT,
    PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;

-- What a person asked of the run (protocol/directives.py).  A row is written together with its
-- effects; a directive that waits is a file in the run folder.
CREATE TABLE IF NOT EXISTS directive (
    id INTEGER PRIMARY KEY,        -- the order in which they took effect
    key TEXT NOT NULL UNIQUE,
    verb TEXT NOT NULL,
    task TEXT NOT NULL,            -- '': the run
    node INTEGER,                  -- of inject: the parent
    arguments TEXT NOT NULL,       -- JSON protocol.directives.DirectiveArguments, less source and reply
    "by" TEXT NOT NULL,
    wanted_at REAL NOT NULL,
    state TEXT NOT NULL,           -- applied, refused
    reason TEXT NOT NULL DEFAULT '', -- why it was refused
    applied_at REAL NOT NULL,      -- or refused
    attempt INTEGER,               -- that inject began
    -- Where it stands among the decisions of its task, for a replay:
    decided INTEGER NOT NULL DEFAULT 0,   -- decisions of the run by then: the largest decision.id
    recorded INTEGER NOT NULL DEFAULT 0,  -- nodes of the task by then, less the root
    begun INTEGER NOT NULL DEFAULT 0,     -- attempts of the task by then
    confirmed INTEGER NOT NULL DEFAULT 0  -- nodes of the task that were judged again by then
) STRICT;

-- What the judge said of a node that a person rejected later.
CREATE TABLE IF NOT EXISTS rejection (
    task TEXT NOT NULL,
    number INTEGER NOT NULL,
    verdict BLOB NOT NULL,         -- msgpack protocol.values.Verdict
    score_us REAL,                 -- null: not correct
    decided INTEGER NOT NULL,      -- as in directive
    PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS lease (
    epoch INTEGER PRIMARY KEY,
    work TEXT NOT NULL,            -- TASK/ATTEMPT/STAGE
    slot TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    granted REAL NOT NULL,
    ended REAL,                    -- null: it is held
    outcome TEXT,                  -- done, lost, cut (with its whole machine), expired, silent (expired, heard of again), missed, returned, dismissed, preempted (background work gave way)
    running INTEGER NOT NULL       -- 1 once candidate code ran under it
) STRICT;
CREATE INDEX IF NOT EXISTS lease_open ON lease (work) WHERE ended IS NULL;
CREATE INDEX IF NOT EXISTS lease_charged ON lease (work) WHERE running = 1;
CREATE INDEX IF NOT EXISTS lease_returned ON lease (work) WHERE outcome = 'returned';

CREATE TABLE IF NOT EXISTS call (
    id INTEGER PRIMARY KEY,
    work TEXT NOT NULL,
    role TEXT NOT NULL,
    model TEXT NOT NULL,
    request TEXT NOT NULL,
    reply TEXT NOT NULL,
    stop TEXT NOT NULL,            -- the model's; 'lost': no whole reply arrived, usd is its maximum
    temperature REAL,              -- as it was really sent; null when none was
    effort TEXT NOT NULL DEFAULT '',
    request_version TEXT NOT NULL DEFAULT '', -- a digest of the texts and code that wrote the request
    input_tokens INTEGER NOT NULL, -- all of them, cached ones included
    cached_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL,
    usd REAL,                      -- null: no price is known
    seconds REAL NOT NULL,
    at REAL NOT NULL
) STRICT;
-- All that sums of spend need: a row's figures come after its request and reply.
CREATE INDEX IF NOT EXISTS call_spend ON call (
    work, role, model, stop, usd, input_tokens, cached_tokens, cache_write_tokens, output_tokens,
    seconds
);
DROP INDEX IF EXISTS call_work;    -- of older versions

-- Kept before a call is made, so that what is spent never passes --max-cost.
CREATE TABLE IF NOT EXISTS reservation (
    id INTEGER PRIMARY KEY,
    incarnation TEXT NOT NULL,
    number INTEGER NOT NULL,       -- of the call, in that process
    work TEXT NOT NULL,
    request TEXT NOT NULL,         -- SHA-256 of the request's text
    role TEXT NOT NULL,
    model TEXT NOT NULL,
    usd REAL,                      -- what the call may cost at most; null: no price is known
    state TEXT NOT NULL,           -- open, settled, released, lost
    call INTEGER,                  -- the row that counts a lost one
    at REAL NOT NULL,
    UNIQUE (incarnation, number)
) STRICT;

-- What each node and role took.  Sums over it are a task's and the run's.
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
    state TEXT NOT NULL,           -- up, silent, lost, left
    doing TEXT NOT NULL,
    since REAL NOT NULL,
    starts INTEGER NOT NULL,
    how TEXT NOT NULL,             -- how the last one ended
    leases INTEGER NOT NULL DEFAULT 0,  -- that it holds
    rtt_ms REAL,                   -- from a heartbeat to its answer; null: not measured yet
    quarantine TEXT NOT NULL DEFAULT '', -- why nothing is judged on its device; '': it is well
    device TEXT NOT NULL DEFAULT '' -- an evaluator's: its name
) STRICT;

CREATE TABLE IF NOT EXISTS event (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    what TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;

-- The change feed: one row for each thing that pages show, with the number of its last change.  The
-- triggers fill it, so no writer can forget it, and a reader asks for all that changed after a number.
-- What is under way has no rows here: it is little, and readers read all of it.
CREATE TABLE IF NOT EXISTS change (
    entity TEXT NOT NULL,          -- task, attempt, worker, event, directive
    key TEXT NOT NULL,             -- the task's name, TASK/NUMBER, the slot, the event's id
    seq INTEGER NOT NULL,          -- only grows: the row with the largest is never removed
    PRIMARY KEY (entity, key)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS change_seq ON change (seq);

CREATE TRIGGER IF NOT EXISTS task_added AFTER INSERT ON task
BEGIN
    INSERT INTO change (entity, key, seq)
    VALUES ('task', NEW.name, (SELECT COALESCE(MAX(seq), 0) + 1 FROM change))
    ON CONFLICT (entity, key) DO UPDATE SET seq = excluded.seq;
END;
CREATE TRIGGER IF NOT EXISTS task_changed AFTER UPDATE ON task
BEGIN
    INSERT INTO change (entity, key, seq)
    VALUES ('task', NEW.name, (SELECT COALESCE(MAX(seq), 0) + 1 FROM change))
    ON CONFLICT (entity, key) DO UPDATE SET seq = excluded.seq;
END;
CREATE TRIGGER IF NOT EXISTS node_added AFTER INSERT ON node
BEGIN
    INSERT INTO change (entity, key, seq)
    VALUES ('attempt', NEW.task || '/' || NEW.number, (SELECT COALESCE(MAX(seq), 0) + 1 FROM change))
    ON CONFLICT (entity, key) DO UPDATE SET seq = excluded.seq;
END;
CREATE TRIGGER IF NOT EXISTS node_changed AFTER UPDATE ON node
BEGIN
    INSERT INTO change (entity, key, seq)
    VALUES ('attempt', NEW.task || '/' || NEW.number, (SELECT COALESCE(MAX(seq), 0) + 1 FROM change))
    ON CONFLICT (entity, key) DO UPDATE SET seq = excluded.seq;
END;
CREATE TRIGGER IF NOT EXISTS call_added AFTER INSERT ON call
BEGIN
    INSERT INTO change (entity, key, seq)
    VALUES ('attempt', substr(NEW.work, 1, instr(NEW.work, '/'))
        || CAST(substr(NEW.work, instr(NEW.work, '/') + 1) AS INTEGER), (SELECT COALESCE(MAX(seq), 0) + 1 FROM change))
    ON CONFLICT (entity, key) DO UPDATE SET seq = excluded.seq;
END;
CREATE TRIGGER IF NOT EXISTS call_removed AFTER DELETE ON call
BEGIN
    INSERT INTO change (entity, key, seq)
    VALUES ('attempt', substr(OLD.work, 1, instr(OLD.work, '/'))
        || CAST(substr(OLD.work, instr(OLD.work, '/') + 1) AS INTEGER), (SELECT COALESCE(MAX(seq), 0) + 1 FROM change))
    ON CONFLICT (entity, key) DO UPDATE SET seq = excluded.seq;
END;
CREATE TRIGGER IF NOT EXISTS worker_added AFTER INSERT ON worker
BEGIN
    INSERT INTO change (entity, key, seq)
    VALUES ('worker', NEW.slot, (SELECT COALESCE(MAX(seq), 0) + 1 FROM change))
    ON CONFLICT (entity, key) DO UPDATE SET seq = excluded.seq;
END;
CREATE TRIGGER IF NOT EXISTS worker_changed AFTER UPDATE ON worker
BEGIN
    INSERT INTO change (entity, key, seq)
    VALUES ('worker', NEW.slot, (SELECT COALESCE(MAX(seq), 0) + 1 FROM change))
    ON CONFLICT (entity, key) DO UPDATE SET seq = excluded.seq;
END;
CREATE TRIGGER IF NOT EXISTS directive_added AFTER INSERT ON directive
BEGIN
    INSERT INTO change (entity, key, seq)
    VALUES ('directive', NEW.key, (SELECT COALESCE(MAX(seq), 0) + 1 FROM change))
    ON CONFLICT (entity, key) DO UPDATE SET seq = excluded.seq;
END;
-- Events are many and never change: only the last 512 are in the feed.
CREATE TRIGGER IF NOT EXISTS event_added AFTER INSERT ON event
BEGIN
    DELETE FROM change WHERE entity = 'event' AND key = CAST(NEW.id - 512 AS TEXT);
    INSERT INTO change (entity, key, seq)
    VALUES ('event', CAST(NEW.id AS TEXT), (SELECT COALESCE(MAX(seq), 0) + 1 FROM change))
    ON CONFLICT (entity, key) DO UPDATE SET seq = excluded.seq;
END;
