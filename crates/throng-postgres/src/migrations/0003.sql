-- SCHEMA stands for the schema's name.

-- Several nodes on one journal: each owns shards, and writes a stream that may hold records of exactly these.

-- One row: what all nodes agree on.
CREATE TABLE SCHEMA.cluster (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    id      uuid NOT NULL DEFAULT gen_random_uuid(),
    version bigint NOT NULL DEFAULT 1,     -- raised by every change of owners and of nodes' states
    shards  integer                        -- null: no node has ever joined
);
INSERT INTO SCHEMA.cluster DEFAULT VALUES;

-- One row a node: one life of one process.
CREATE TABLE SCHEMA.nodes (
    node        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL,
    peer        text NOT NULL,             -- where other nodes reach it
    http        text NOT NULL,             -- where clients reach it
    program     text NOT NULL,
    app         bigint NOT NULL,           -- the service's release
    state       text NOT NULL DEFAULT 'serving' CHECK (state IN ('serving', 'draining', 'left', 'dead')),
    wants_drain boolean NOT NULL DEFAULT false,
    beat        bigint NOT NULL DEFAULT 0, -- a number that does not change is a node that is silent
    session     text NOT NULL,             -- its name among its connections
    joined_at   timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Who owns a shard; null: nobody ever has.
CREATE TABLE SCHEMA.owners (
    shard integer PRIMARY KEY,
    node  bigint
) WITH (fillfactor = 50);

ALTER TABLE SCHEMA.writers
    ADD COLUMN node_id bigint,             -- null: an engine that is alone
    ADD COLUMN shards bytea;               -- the shards whose records the stream may hold, by bits; null: all

-- What the store covers of a shard that a node has made a checkpoint of; of all others, what the row of checkpoint says.
CREATE TABLE SCHEMA.covers (
    shard         integer PRIMARY KEY,
    writer        bigint NOT NULL,
    commit        bigint NOT NULL,
    events_writer bigint,                  -- everything up to here is in the table events
    events_commit bigint
) WITH (fillfactor = 50);

-- Numbers of entities, for checkpoints that are made side by side.
CREATE SEQUENCE SCHEMA.entity_numbers;
SELECT setval('SCHEMA.entity_numbers', greatest(entities, 1), entities > 0) FROM SCHEMA.checkpoint;
ALTER TABLE SCHEMA.checkpoint DROP COLUMN entities;
