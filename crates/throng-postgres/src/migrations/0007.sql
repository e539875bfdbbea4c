-- SCHEMA stands for the schema's name.

-- What nodes tell each other beside their beats.
ALTER TABLE SCHEMA.nodes
    ADD COLUMN IF NOT EXISTS reaches bigint[] NOT NULL DEFAULT '{}',    -- nodes it is connected to, itself among them
    ADD COLUMN IF NOT EXISTS cut_off boolean NOT NULL DEFAULT false,    -- others have it drain: they do not reach it
    ADD COLUMN IF NOT EXISTS lease_micros bigint NOT NULL DEFAULT 0,    -- 0: it did not say
    ADD COLUMN IF NOT EXISTS kinds text[] NOT NULL DEFAULT '{}';        -- of entities
