-- SCHEMA stands for the schema's name.

-- One row: the server, database and schema in which the journal was served last. In a copy they differ.
CREATE TABLE IF NOT EXISTS SCHEMA.place (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    place text
);
INSERT INTO SCHEMA.place DEFAULT VALUES ON CONFLICT DO NOTHING;
