-- What recall searches: of each message what an embedder made of it, as little-endian 32 bit floats of
-- length 1, or empty where there was nothing to embed.
CREATE TABLE vectors (
    thread INTEGER NOT NULL,
    embedder TEXT NOT NULL,
    position INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX vectors_of_thread ON vectors (thread, embedder, position);
