-- SCHEMA stands for the schema's name.

-- One row a writer: one life of one node.
CREATE TABLE SCHEMA.writers (
    writer    bigint PRIMARY KEY,
    node      text NOT NULL,
    session   text NOT NULL,               -- the engine's name among its connections
    opened_at timestamptz NOT NULL DEFAULT now(),
    sealed_at timestamptz,                 -- null: it may commit
    last      bigint                       -- its last commit, once it is sealed
) WITH (fillfactor = 50);

-- The truth: one row a commit, gapless from 1 for each writer.
CREATE TABLE SCHEMA.commits (
    writer bigint NOT NULL,
    number bigint NOT NULL,
    shards bytea NOT NULL,                 -- bit n (get_bit): a record of shard n is in it
    body   bytea NOT NULL,                 -- the commit's bytes, as in every journal
    PRIMARY KEY (writer, number)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_insert_scale_factor = 0.5);
ALTER TABLE SCHEMA.commits ALTER body SET STORAGE EXTERNAL;

-- How long a writer's engine may answer reads.
CREATE TABLE SCHEMA.leases (
    writer bigint PRIMARY KEY,
    until  timestamptz NOT NULL,
    over   boolean NOT NULL DEFAULT false  -- taken over: not renewed any more
) WITH (fillfactor = 50);

-- What follows can be rebuilt from the commits.

-- One row: what the store covers.
CREATE TABLE SCHEMA.checkpoint (
    one           boolean PRIMARY KEY DEFAULT true CHECK (one),
    writer        bigint,                  -- everything up to here is in the store
    commit        bigint,
    entities      bigint NOT NULL DEFAULT 0, -- entities numbered so far
    events_writer bigint,                  -- everything up to here is in the table events
    events_commit bigint,
    made_at       timestamptz
);
INSERT INTO SCHEMA.checkpoint DEFAULT VALUES;

CREATE TABLE SCHEMA.entities (
    entity bigint PRIMARY KEY,
    kind   text COLLATE "C" NOT NULL,
    id     bytea NOT NULL,                 -- UTF-8
    seq    bigint NOT NULL                 -- its last event at the checkpoint
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX entities_by_id ON SCHEMA.entities (kind, id);

CREATE TABLE SCHEMA.states (
    entity  bigint PRIMARY KEY,
    seq     bigint NOT NULL,               -- the last event in it
    version integer NOT NULL,              -- the kind's STATE_VERSION
    shard   integer NOT NULL,
    state   bytea NOT NULL
);

-- Where an entity's events stand in the commits: one row for an entity, a writer and a checkpoint.
CREATE TABLE SCHEMA.places (
    entity bigint NOT NULL,
    last   bigint NOT NULL,                -- the last event in the row
    writer bigint NOT NULL,
    places bytea NOT NULL,
    PRIMARY KEY (entity, last)
);

-- The engine's own rows: timers, idempotency keys, messages on their way.
CREATE TABLE SCHEMA.system (
    key   bytea PRIMARY KEY,
    value bytea NOT NULL
);

-- For people: every event, filled at each checkpoint.
CREATE TABLE SCHEMA.events (
    kind        text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    seq         bigint NOT NULL,
    shard       integer NOT NULL,
    writer      bigint NOT NULL,
    commit      bigint NOT NULL,
    type        text COLLATE "C" NOT NULL,
    version     integer NOT NULL,
    payload     jsonb,                     -- null: not JSON, see metadata
    metadata    jsonb,
    recorded_at timestamptz NOT NULL
);
CREATE INDEX events_by_entity ON SCHEMA.events (kind, id, seq);
CREATE INDEX events_by_time ON SCHEMA.events USING brin (recorded_at);

-- Read models: how far each has come, and its rows.
CREATE TABLE SCHEMA.views (
    view       text COLLATE "C" PRIMARY KEY,
    writer     bigint NOT NULL,
    commit     bigint NOT NULL,
    checksum   bigint NOT NULL,
    version    bigint NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
CREATE TABLE SCHEMA.view_rows (
    view  text COLLATE "C" NOT NULL,
    key   bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (view, key)
);

-- Bytes for people: as JSON or text where they are that, else null.
CREATE FUNCTION SCHEMA.as_json(bytes bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(bytes, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END $$;
CREATE FUNCTION SCHEMA.as_text(bytes bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;
CREATE VIEW SCHEMA.read_models AS
    SELECT view, SCHEMA.as_text(key) AS key, SCHEMA.as_json(value) AS value, SCHEMA.view_rows.key AS key_bytes,
        SCHEMA.view_rows.value AS value_bytes FROM SCHEMA.view_rows;
