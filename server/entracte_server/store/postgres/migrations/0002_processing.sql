-- What the processors of a run have done and what they keep; NULL for runs without.
ALTER TABLE entracte.run_specs ADD COLUMN processing bytea;
