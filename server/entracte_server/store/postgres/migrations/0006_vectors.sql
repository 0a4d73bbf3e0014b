-- What recall searches: of each message what an embedder made of it, as little-endian 32 bit floats of
-- length 1, or empty where there was nothing to embed.
CREATE TABLE entracte.vectors (
    thread bigint NOT NULL,
    embedder text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (thread, embedder, position)
);
-- They cannot be made smaller, so it is not tried.
ALTER TABLE entracte.vectors ALTER COLUMN data SET STORAGE EXTERNAL;
