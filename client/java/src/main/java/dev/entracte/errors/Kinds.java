package dev.entracte.errors;

import io.grpc.Status;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Function;

/** Which exception stands for which reason and status code of the contract. */
final class Kinds {
  private static final Map<String, Function<ErrorDetails, EntracteException>> BY_REASON =
      new HashMap<>();
  private static final Map<Status.Code, Function<ErrorDetails, EntracteException>> BY_CODE =
      new EnumMap<>(Status.Code.class);

  static {
    BY_CODE.put(Status.Code.INVALID_ARGUMENT, InvalidArgumentException::new);
    BY_CODE.put(Status.Code.NOT_FOUND, NotFoundException::new);
    BY_CODE.put(Status.Code.ALREADY_EXISTS, AlreadyExistsException::new);
    BY_CODE.put(Status.Code.FAILED_PRECONDITION, FailedPreconditionException::new);
    BY_CODE.put(Status.Code.OUT_OF_RANGE, OutOfRangeException::new);
    BY_CODE.put(Status.Code.UNAUTHENTICATED, UnauthenticatedException::new);
    BY_CODE.put(Status.Code.PERMISSION_DENIED, PermissionDeniedException::new);
    BY_CODE.put(Status.Code.RESOURCE_EXHAUSTED, ResourceExhaustedException::new);
    BY_CODE.put(Status.Code.UNAVAILABLE, UnavailableException::new);
    BY_CODE.put(Status.Code.ABORTED, AbortedException::new);
    BY_CODE.put(Status.Code.UNIMPLEMENTED, UnimplementedException::new);
    BY_CODE.put(Status.Code.DEADLINE_EXCEEDED, DeadlineExceededException::new);
    BY_CODE.put(Status.Code.INTERNAL, InternalException::new);
    BY_REASON.put("REQUEST_INVALID", RequestInvalidException::new);
    BY_REASON.put("JSON_INVALID", JsonInvalidException::new);
    BY_REASON.put("SCHEMA_INVALID", SchemaInvalidException::new);
    BY_REASON.put("RESUME_DATA_INVALID", ResumeDataInvalidException::new);
    BY_REASON.put("EDITED_ARGS_INVALID", EditedArgsInvalidException::new);
    BY_REASON.put("REQUEST_ID_REUSED", RequestIdReusedException::new);
    BY_REASON.put("PAGE_TOKEN_INVALID", PageTokenInvalidException::new);
    BY_REASON.put("AGENT_NOT_FOUND", AgentNotFoundException::new);
    BY_REASON.put("AGENT_VERSION_NOT_FOUND", AgentVersionNotFoundException::new);
    BY_REASON.put("RUN_NOT_FOUND", RunNotFoundException::new);
    BY_REASON.put("PENDING_CALL_NOT_FOUND", PendingCallNotFoundException::new);
    BY_REASON.put("THREAD_NOT_FOUND", ThreadNotFoundException::new);
    BY_REASON.put("WORK_NOT_FOUND", WorkNotFoundException::new);
    BY_REASON.put("RUN_ALREADY_EXISTS", RunAlreadyExistsException::new);
    BY_REASON.put("AGENT_DEFINED_IN_CODE", AgentDefinedInCodeException::new);
    BY_REASON.put("THREAD_EXISTS", ThreadExistsException::new);
    BY_REASON.put("WORKER_TOOL_EXISTS", WorkerToolExistsException::new);
    BY_REASON.put("AGENT_NOT_PUBLISHED", AgentNotPublishedException::new);
    BY_REASON.put("AGENT_VERSION_ARCHIVED", AgentVersionArchivedException::new);
    BY_REASON.put("AGENT_VERSION_UNUSABLE", AgentVersionUnusableException::new);
    BY_REASON.put("PENDING_CALL_ALREADY_DECIDED", PendingCallAlreadyDecidedException::new);
    BY_REASON.put("PENDING_CALL_AMBIGUOUS", PendingCallAmbiguousException::new);
    BY_REASON.put("PENDING_CALL_EXPIRED", PendingCallExpiredException::new);
    BY_REASON.put("PENDING_CALL_CLAIMED", PendingCallClaimedException::new);
    BY_REASON.put("VERB_MISMATCH", VerbMismatchException::new);
    BY_REASON.put("ARGS_DIGEST_MISMATCH", ArgsDigestMismatchException::new);
    BY_REASON.put("RUN_FINISHED", RunFinishedException::new);
    BY_REASON.put("RUN_NOT_FINISHED", RunNotFinishedException::new);
    BY_REASON.put("AGENT_UNAVAILABLE", AgentUnavailableException::new);
    BY_REASON.put("TOOL_UNAVAILABLE", ToolUnavailableException::new);
    BY_REASON.put("RUN_OF_SUB_AGENT", RunOfSubAgentException::new);
    BY_REASON.put("TOOLSET_UNAVAILABLE", ToolsetUnavailableException::new);
    BY_REASON.put("THREAD_PARKED", ThreadParkedException::new);
    BY_REASON.put("THREAD_OF_OTHER_RESOURCE", ThreadOfOtherResourceException::new);
    BY_REASON.put("WORKER_TOOL_UNKNOWN", WorkerToolUnknownException::new);
    BY_REASON.put("WORK_REASSIGNED", WorkReassignedException::new);
    BY_REASON.put("WORK_COMPLETED", WorkCompletedException::new);
    BY_REASON.put("WORK_CANCELLED", WorkCancelledException::new);
    BY_REASON.put("SEQUENCE_TRIMMED", SequenceTrimmedException::new);
    BY_REASON.put("SEQUENCE_AHEAD", SequenceAheadException::new);
    BY_REASON.put("RESULT_TOO_LARGE", ResultTooLargeException::new);
    BY_REASON.put("ROLE_REQUIRED", RoleRequiredException::new);
    BY_REASON.put("TOO_MANY_STREAMS", TooManyStreamsException::new);
    BY_REASON.put("TOO_MANY_RUNS", TooManyRunsException::new);
    BY_REASON.put("THREAD_QUEUE_FULL", ThreadQueueFullException::new);
    BY_REASON.put("TOO_MANY_WORKERS", TooManyWorkersException::new);
    BY_REASON.put("WORK_OUTPUT_FULL", WorkOutputFullException::new);
    BY_REASON.put("READER_TOO_SLOW", ReaderTooSlowException::new);
    BY_REASON.put("SERVER_DRAINING", ServerDrainingException::new);
    BY_REASON.put("STORE_UNAVAILABLE", StoreUnavailableException::new);
    BY_REASON.put("RUN_LEASE_LOST", RunLeaseLostException::new);
    BY_REASON.put("PUBLISHED_VERSION_CHANGED", PublishedVersionChangedException::new);
    BY_REASON.put("THREAD_BUSY", ThreadBusyException::new);
    BY_REASON.put("WORKING_MEMORY_CHANGED", WorkingMemoryChangedException::new);
    BY_REASON.put("WORKER_SESSION_REPLACED", WorkerSessionReplacedException::new);
    BY_REASON.put("OPTION_UNSUPPORTED", OptionUnsupportedException::new);
    BY_REASON.put("WAIT_TOO_LONG", WaitTooLongException::new);
    BY_REASON.put("UNAUTHENTICATED", UnauthenticatedException::new);
    BY_REASON.put("INTERNAL", InternalException::new);
  }

  private Kinds() {}

  /** The exception for what is known of an error: that of its reason, else that of its code. */
  static EntracteException of(ErrorDetails details) {
    if (details.reason().isEmpty() && details.code() == Status.Code.UNAVAILABLE) {
      // Every status of the server has a reason: this one was made up by the transport.
      return new ServerUnreachableException(details);
    }
    EntracteException general =
        BY_CODE.getOrDefault(details.code(), EntracteException::new).apply(details);
    Function<ErrorDetails, EntracteException> named = BY_REASON.get(details.reason());
    if (named == null) {
      return general;
    }
    EntracteException special = named.apply(details);
    // A reason that comes with another code than the contract says is not what it seems.
    return general.getClass().isInstance(special) ? special : general;
  }
}
