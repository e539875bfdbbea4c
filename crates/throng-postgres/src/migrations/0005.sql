-- SCHEMA stands for the schema's name.

-- What the commits of a stream take. Counted from the commits by whoever looks; without these rows, all is counted anew.
CREATE TABLE SCHEMA.sizes (
    writer bigint PRIMARY KEY,
    upto   bigint NOT NULL,                -- commits up to this one are counted
    bytes  bigint NOT NULL                 -- what is left of those
) WITH (fillfactor = 50);
