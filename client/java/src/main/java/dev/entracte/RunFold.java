package dev.entracte;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What the chunks of a run add up to: text, steps and usage, for showing a run while it goes on.
 *
 * <p>It takes every chunk in order, looks at the run's own agent only, and drops what a new attempt
 * of a step made void. Of a run that is followed from its middle it knows only that part. Not for
 * use by several threads at once.
 */
public final class RunFold {
  private final Map<Integer, Step> steps = new LinkedHashMap<>();
  private Step last;
  private Chunk.Finish finish;
  private RunError error;

  /** A fold of no chunks. */
  public RunFold() {}

  /**
   * The text of all steps so far, drafts left out.
   *
   * @return the text
   */
  public String text() {
    StringBuilder text = new StringBuilder();
    for (Step step : steps.values()) {
      if (!step.isDraft) {
        text.append(step.text);
      }
    }
    return text.toString();
  }

  /**
   * The structured output as far as it has come: in part while the model writes it, at last
   * validated.
   *
   * @return the value; null where the last step has none
   */
  public Json object() {
    return last == null || last.isDraft ? null : last.object;
  }

  /**
   * The steps so far, the last one perhaps in progress.
   *
   * @return the steps
   */
  public List<StepResult> steps() {
    return steps.values().stream().map(Step::result).toList();
  }

  /**
   * Tokens of the run, as of its last {@code finish}.
   *
   * @return the usage
   */
  public Usage usage() {
    return finish == null ? new Usage(0, 0, 0, 0, 0) : finish.usage();
  }

  /**
   * How the run parked or ended.
   *
   * @return the chunk; null while it goes on
   */
  public Chunk.Finish finish() {
    return finish;
  }

  /**
   * Why the run failed.
   *
   * @return the error; null when it has not
   */
  public RunError error() {
    return error;
  }

  /**
   * Takes in the next chunk.
   *
   * @param chunk the chunk
   * @return the step that it ended; null when it ended none
   */
  public StepResult add(Chunk chunk) {
    if (!chunk.isRoot()) {
      return null;
    }
    if (chunk instanceof Chunk.Finish end) {
      finish = end;
      if (end.reason() != FinishReason.SUSPENDED) {
        steps.values().forEach(Step::dropPartialObject);
      }
      return null;
    }
    finish = null;
    if (chunk instanceof Chunk.Failure failure) {
      error = failure.error();
      return null;
    }
    ChunkHeader header = chunk.header();
    if (header.step() == 0 || chunk instanceof Chunk.Abort) {
      return null;
    }
    Step step = steps.get(header.step());
    if (step == null || header.attempt() > step.attempt) {
      step = new Step(header.step(), header.attempt());
      steps.put(header.step(), step);
      last = step;
    } else if (header.attempt() < step.attempt) {
      return null;
    }
    return step.add(chunk);
  }

  private static final class Step {
    final int number;
    final int attempt;
    final StringBuilder text = new StringBuilder();
    final StringBuilder thoughts = new StringBuilder();
    final List<ToolChunk.Call> calls = new ArrayList<>();
    final List<ToolChunk.Result> results = new ArrayList<>();
    FinishReason reason;
    Usage usage = new Usage(0, 0, 0, 0, 0);
    Tripwire tripwire;
    boolean isDraft;
    Json object;
    boolean isObjectValid;

    Step(int number, int attempt) {
      this.number = number;
      this.attempt = attempt;
    }

    StepResult add(Chunk chunk) {
      if (chunk instanceof Chunk.TextDelta delta) {
        text.append(delta.text());
      } else if (chunk instanceof Chunk.ReasoningDelta delta) {
        thoughts.append(delta.text());
      } else if (chunk instanceof ToolChunk.Call call) {
        calls.add(call);
      } else if (chunk instanceof ToolChunk.Result result) {
        results.add(result);
      } else if (chunk instanceof Chunk.PartialObject part) {
        object = part.object();
      } else if (chunk instanceof Chunk.ObjectResult whole) {
        object = whole.object();
        isObjectValid = true;
      } else if (chunk instanceof Chunk.TripwireHit hit) {
        tripwire = hit.tripwire();
      } else if (chunk instanceof Chunk.IsTaskComplete check) {
        isDraft = !check.passed() && !check.endsRun();
      } else if (chunk instanceof Chunk.StepFinish end) {
        reason = end.reason();
        usage = end.usage();
        dropPartialObject();
        return result();
      }
      return null;
    }

    /** What is left of an object in a step that was cut never was one. */
    void dropPartialObject() {
      if (!isObjectValid) {
        object = null;
      }
    }

    StepResult result() {
      return new StepResult(
          number,
          text.toString(),
          List.copyOf(calls),
          List.copyOf(results),
          reason,
          usage,
          null,
          null,
          thoughts.toString(),
          tripwire,
          isDraft);
    }
  }
}
