/** Abort signals that follow one another. */

/** Abort `controller` when `signal` is aborted, for the same reason. Call what is returned to end that. */
export function link(signal: AbortSignal | undefined, controller: AbortController): () => void {
  if (signal === undefined) return () => {};
  const follow = (): void => controller.abort(signal.reason);
  if (signal.aborted) follow();
  signal.addEventListener("abort", follow, { once: true });
  return () => signal.removeEventListener("abort", follow);
}
