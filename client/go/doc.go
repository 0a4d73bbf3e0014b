// Package entracte runs LLM agents that stop and wait for people, over gRPC.
//
//	client, err := entracte.NewClient("localhost:50051")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	for chunk, err := range client.Agent("support").Stream(ctx, entracte.Text("Refund order 7")) {
//		if err != nil {
//			return err
//		}
//		if delta, ok := chunk.(*entracte.TextDeltaChunk); ok {
//			fmt.Print(delta.Text)
//		}
//	}
//
// Start with [Client], [Agent], [RunStream] and [GenerateResult].
//
// # Waiting and cancelling
//
// Every call takes a [context.Context]. Its deadline bounds the wait and never the run, which goes on and
// can be followed again with [RunsClient.Watch]; to end a run use [RunsClient.Cancel]. A plain request
// without a deadline gets the client's own of 30 seconds; waiting for a run has no limit of its own.
//
// # Broken connections
//
// Every request that changes something carries a request id, so that it is safe to repeat. Calls and
// streams are made again by themselves while the server is away, within [WithReattachTimeout]; a stream
// goes on after the last chunk, so that each chunk comes once and none is missing.
//
// # Errors
//
// What the server refuses is an [*Error], and also a type of its own for each reason:
//
//	var busy entracte.ThreadBusy
//	if errors.As(err, &busy) {
//		log.Printf("thread %s is in use by run %s", busy.Metadata["thread_id"], busy.Metadata["run_id"])
//	}
//
// A run that failed is no error: it is a result with FinishReason "error".
//
// Package entracte.dev/go/entracte/v1 has the generated stubs of the contract.
package entracte
