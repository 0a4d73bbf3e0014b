package dev.entracte;

import java.time.Instant;
import java.util.List;

/**
 * What every chunk has.
 *
 * @param runId the run, always the root run of a tree of agents
 * @param sequence the position in the run, from 1, without gaps over all suspensions
 * @param emitTime when the server made it
 * @param source who made it
 * @param step the step it belongs to, from 1; 0 before the first step
 * @param attempt the attempt of the step, from 1
 * @param agentPath the delegations on the way to the sub-agent that made it; empty for the run's
 *     own agent
 * @param ignorable whether a client that does not know the type may skip it
 */
public record ChunkHeader(
    String runId,
    long sequence,
    Instant emitTime,
    ChunkSource source,
    int step,
    int attempt,
    List<PathElement> agentPath,
    boolean ignorable) {}
