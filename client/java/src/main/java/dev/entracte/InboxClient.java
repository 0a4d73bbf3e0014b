package dev.entracte;

import dev.entracte.errors.EntracteException;
import dev.entracte.v1.ClaimPendingCallRequest;
import dev.entracte.v1.GetPendingCallRequest;
import dev.entracte.v1.InboxServiceGrpc;
import dev.entracte.v1.ListDecisionsResponse;
import dev.entracte.v1.ListPendingCallsResponse;
import dev.entracte.v1.ReleasePendingCallRequest;
import dev.entracte.v1.WatchPendingCallsRequest;
import java.time.Duration;

/**
 * What waits for people, and what people decided. Decide with {@code
 * client.agent(call.agentId()).approve(call)} and its siblings. Methods throw {@link
 * EntracteException}. Safe for use by several threads.
 */
public final class InboxClient {
  private final Connection connection;
  private final RequestOptions options;

  InboxClient(Connection connection, RequestOptions options) {
    this.connection = connection;
    this.options = options;
  }

  /**
   * The same with other options of its requests.
   *
   * @param options time limit and request id
   * @return another client on the same connection
   */
  public InboxClient with(RequestOptions options) {
    return new InboxClient(connection, options);
  }

  /**
   * The options of its requests.
   *
   * @return time limit and request id
   */
  public RequestOptions options() {
    return options;
  }

  /**
   * All pending calls that fit, oldest first.
   *
   * @param filter which
   * @return the calls, page after page
   */
  public Paged<PendingCall> list(InboxFilter filter) {
    return new Paged<>(
        token -> {
          ListPendingCallsResponse response =
              connection.call(
                  InboxServiceGrpc.getListPendingCallsMethod(),
                  filter.wire().toBuilder().setPageToken(token).build(),
                  options.timeout());
          return new Page<>(
              response.getPendingCallsList().stream().map(PendingCall::of).toList(),
              response.getNextPageToken());
        });
  }

  /**
   * Reads a pending call, decided or not.
   *
   * @param pendingCallId the call
   * @return the call
   */
  public PendingCall get(String pendingCallId) {
    GetPendingCallRequest request =
        GetPendingCallRequest.newBuilder().setPendingCallId(pendingCallId).build();
    return PendingCall.of(
        connection
            .call(InboxServiceGrpc.getGetPendingCallMethod(), request, options.timeout())
            .getPendingCall());
  }

  /**
   * The open calls, then every change, without end.
   *
   * @param filter which calls; run, agent and resource are looked at
   * @return the changes; close it when done
   */
  public InboxWatch watch(InboxFilter filter) {
    return watch(filter, null);
  }

  /**
   * The open calls, then every change, for a time.
   *
   * @param filter which calls; run, agent and resource are looked at
   * @param timeout how long: then reading throws {@code DeadlineExceededException}; null for ever
   * @return the changes; close it when done
   */
  public InboxWatch watch(InboxFilter filter, Duration timeout) {
    WatchPendingCallsRequest request =
        WatchPendingCallsRequest.newBuilder()
            .setRunId(filter.wire().getRunId())
            .setAgentId(filter.wire().getAgentId())
            .setResourceId(filter.wire().getResourceId())
            .build();
    return new InboxWatch(connection, request, timeout);
  }

  /**
   * Keeps others from deciding a call for a while. Claiming one's own claim again extends it.
   * Refused with {@code PendingCallClaimedException} for another's.
   *
   * @param call the call
   * @param ttl how long, 1 s to 1 day; null for 5 minutes
   * @return the claimed call
   */
  public PendingCall claim(WaitingCall call, Duration ttl) {
    ClaimPendingCallRequest.Builder request =
        ClaimPendingCallRequest.newBuilder()
            .setPendingCallId(call.pendingCallId())
            .setRequestId(options.anyRequestId());
    if (ttl != null) {
      request.setTtl(Wire.duration(ttl));
    }
    return PendingCall.of(
        connection
            .call(InboxServiceGrpc.getClaimPendingCallMethod(), request.build(), options.timeout())
            .getPendingCall());
  }

  /**
   * Gives a claim back. Refused with {@code PendingCallClaimedException} for another's.
   *
   * @param call the call
   * @return the released call
   */
  public PendingCall release(WaitingCall call) {
    ReleasePendingCallRequest request =
        ReleasePendingCallRequest.newBuilder()
            .setPendingCallId(call.pendingCallId())
            .setRequestId(options.anyRequestId())
            .build();
    return PendingCall.of(
        connection
            .call(InboxServiceGrpc.getReleasePendingCallMethod(), request, options.timeout())
            .getPendingCall());
  }

  /**
   * All decisions that fit, newest first.
   *
   * @param filter which
   * @return the decisions, page after page
   */
  public Paged<Decision> decisions(DecisionFilter filter) {
    return new Paged<>(
        token -> {
          ListDecisionsResponse response =
              connection.call(
                  InboxServiceGrpc.getListDecisionsMethod(),
                  filter.wire().toBuilder().setPageToken(token).build(),
                  options.timeout());
          return new Page<>(
              response.getDecisionsList().stream().map(Decision::of).toList(),
              response.getNextPageToken());
        });
  }
}
