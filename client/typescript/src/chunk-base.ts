/** What all chunks have in common. */

import type { ChunkSource } from "./enums.js";

/** One delegation on the way to a sub-agent. */
export interface PathElement {
  readonly agentId: string;
  readonly toolCallId: string;
}

/** What every chunk has. */
export interface ChunkHeader {
  /** Always the root run of a tree of agents. */
  readonly runId: string;
  /** Counts from 1 without gaps, over all suspensions. */
  readonly sequence: number;
  readonly emitTime: Date | undefined;
  readonly source: ChunkSource;
  /** Counts from 1; 0 before the first step. */
  readonly step: number;
  /** The attempt of the step, from 1. */
  readonly attempt: number;
  /** Empty for the run's own agent. */
  readonly agentPath: readonly PathElement[];
  /** Whether a client that does not know the chunk's type may skip it. */
  readonly ignorable: boolean;
}
