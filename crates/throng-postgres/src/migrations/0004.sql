-- SCHEMA stands for the schema's name.

-- Where an operator wants shards: at the node of this name, while one serves. Not in owners, whose rows wait for hand-offs.
CREATE TABLE SCHEMA.pins (
    shard integer PRIMARY KEY,
    name  text NOT NULL
);

-- The newest of what nodes ask of each other that a node understands; 0: its program did not say.
ALTER TABLE SCHEMA.nodes ADD COLUMN features integer NOT NULL DEFAULT 0;

-- Whoever understands less, or is of an older release, is not let in any more.
ALTER TABLE SCHEMA.cluster
    ADD COLUMN features integer NOT NULL DEFAULT 0,
    ADD COLUMN app bigint NOT NULL DEFAULT 0;
