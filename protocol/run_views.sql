-- The views of run.db.  A person reads them with sqlite3, programs read them through
-- actors/supervisor/reporting/run_data/run_tables.py.  docs/run-folder.md explains each column.
-- `work` of a call or a lease is TASK/NUMBER/STAGE, and "0" is the character after "/".

DROP VIEW IF EXISTS attempts;
CREATE VIEW attempts AS
    SELECT
        attempt.task AS task,
        attempt.number AS number,
        attempt.parent AS parent,
        attempt.kind AS kind,
        attempt.state AS state,
        trim(substr(replace(replace(COALESCE(node.advice, attempt.advice), char(13), ' '),
            char(10), ' '), 1, 200)) AS idea,
        node.word AS verdict,
        node.reason AS reason,
        node.failed_in AS failed_in,
        node.speedup AS speedup,
        node.low AS low,
        node.high AS high,
        node.score_us AS us,
        node.confirmed = 1 AS confirmed,
        COALESCE(node.pinned, 0) AS pinned,
        COALESCE(node.pruned, 0) > 0 AS pruned,
        node.build_s AS build_s,
        node.check_s AS check_s,
        node.timing_s AS timing_s,
        (
            SELECT group_concat(stage, ' ')
            FROM (
                SELECT stage FROM decision
                WHERE decision.task = attempt.task AND decision.number = attempt.number
                ORDER BY id
            )
        ) AS stages,
        (
            SELECT COUNT(*) FROM call WHERE work >= attempt.task || '/' || attempt.number || '/'
            AND work < attempt.task || '/' || attempt.number || '0'
        ) AS calls,
        (
            SELECT CASE WHEN SUM(usd IS NULL) > 0 THEN NULL ELSE COALESCE(SUM(usd), 0.0) END
            FROM call WHERE work >= attempt.task || '/' || attempt.number || '/'
            AND work < attempt.task || '/' || attempt.number || '0'
        ) AS usd,
        (
            SELECT COALESCE(SUM(input_tokens), 0)
            FROM call WHERE work >= attempt.task || '/' || attempt.number || '/'
            AND work < attempt.task || '/' || attempt.number || '0'
        ) AS input_tokens,
        (
            SELECT COALESCE(SUM(output_tokens), 0)
            FROM call WHERE work >= attempt.task || '/' || attempt.number || '/'
            AND work < attempt.task || '/' || attempt.number || '0'
        ) AS output_tokens,
        (
            SELECT COALESCE(SUM(seconds), 0.0)
            FROM call WHERE work >= attempt.task || '/' || attempt.number || '/'
            AND work < attempt.task || '/' || attempt.number || '0'
        ) AS model_s,
        node.at AS at
    FROM attempt LEFT JOIN node ON node.task = attempt.task AND node.number = attempt.number;

DROP VIEW IF EXISTS verdicts;
CREATE VIEW verdicts AS
    SELECT task, number, CASE WHEN confirmed = 1 THEN 'confirmation' ELSE 'first look' END AS look,
        word AS verdict, reason, failed_in, speedup, low, high, score_us AS us, median_us,
        reference_us, max_error, build_s, check_s, timing_s, labels, sandbox_level, device
    FROM node WHERE number > 0
    UNION ALL
    SELECT task, number, 'first look',
        first_look.word, first_look.reason, first_look.failed_in, first_look.speedup, first_look.low,
        first_look.high, first_look.score_us, first_look.median_us, first_look.reference_us,
        first_look.max_error, first_look.build_s, first_look.check_s, first_look.timing_s,
        first_look.labels, first_look.sandbox_level, first_look.device
    FROM first_look JOIN node USING (task, number) WHERE confirmed = 1;

DROP VIEW IF EXISTS calls;
CREATE VIEW calls AS
    SELECT
        id,
        substr(work, 1, instr(work, '/') - 1) AS task,
        CAST(substr(work, instr(work, '/') + 1) AS INTEGER) AS number,
        substr(work, instr(work, '/') + 1
            + instr(substr(work, instr(work, '/') + 1), '/')) AS stage,
        role, model, stop, temperature, effort, input_tokens, cached_tokens, cache_write_tokens,
        output_tokens, usd, seconds, length(request) AS request_characters,
        length(reply) AS reply_characters, at
    FROM call;

DROP VIEW IF EXISTS leases;
CREATE VIEW leases AS
    SELECT
        epoch,
        substr(work, 1, instr(work, '/') - 1) AS task,
        CAST(substr(work, instr(work, '/') + 1) AS INTEGER) AS number,
        substr(work, instr(work, '/') + 1
            + instr(substr(work, instr(work, '/') + 1), '/')) AS stage,
        slot, granted, ended, ended - granted AS seconds, COALESCE(outcome, 'held') AS outcome,
        running AS ran_candidate
    FROM lease;

DROP VIEW IF EXISTS tasks;
CREATE VIEW tasks AS
    SELECT
        name AS task,
        status,
        budget,
        (SELECT COUNT(*) FROM node WHERE node.task = name AND number > 0) AS attempts,
        (
            SELECT COUNT(*) FROM node WHERE node.task = name AND number > 0 AND word = 'correct'
        ) AS correct,
        -- As `TaskState.best` has it: confirmed first, and only confirmed once the task is over.
        (
            SELECT number FROM node
            WHERE node.task = name AND number > 0 AND word = 'correct' AND low > 1.0
                AND instr(', ' || labels || ',', ', renamed_reference,') = 0
                AND (confirmed = 1 OR task.status != 'finished')
            ORDER BY confirmed = 1 DESC, score_us, number LIMIT 1
        ) AS best,
        eager_us,
        compile_us,
        max_autotune_us,
        device_name AS device,
        problem
    FROM task;
