-- SCHEMA stands for the schema's name.

-- Which process holds a lease: on its own machine nobody has to wait for one that is gone.
ALTER TABLE SCHEMA.leases ADD COLUMN process text;
