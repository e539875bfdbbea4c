-- SCHEMA stands for the schema's name.

-- One row: the server, database and schema in which the journal was served last. In a copy they differ.
CREATE TABLE IF NOT EXISTS SCHEMA.place (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    place text
);
INSERT INTO SCHEMA.place DEFAULT VALUES ON CONFLICT DO NOTHING;
-- Acknowledged commits that this database has lost: found by an engine that had written or read them.
CREATE TABLE IF NOT EXISTS SCHEMA.losses (
    loss        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    writer      bigint NOT NULL,
    commit      bigint NOT NULL,           -- the last one that was acknowledged
    held        bigint NOT NULL,           -- the last one of its writer that is here; 0: none
    timeline    text,                      -- of the server that lacks them
    session     text NOT NULL,             -- the engine that found it
    found_at    timestamptz NOT NULL DEFAULT now(),
    accepted_at timestamptz,               -- null: no engine starts
    UNIQUE (writer, commit)
);

-- What was in them, as far as that engine still knew.
CREATE TABLE IF NOT EXISTS SCHEMA.lost_commits (
    writer   bigint NOT NULL,
    number   bigint NOT NULL,
    at       timestamptz NOT NULL,
    entities text[] NOT NULL,
    keys     text[] NOT NULL,
    PRIMARY KEY (writer, number)
);
