package dev.entracte;

/**
 * How a stream began.
 *
 * @param follower what follows the run
 * @param decision the decision it began with; null for other streams
 */
record Beginning(Follower follower, Decision decision) {}
