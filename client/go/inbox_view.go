package entracte

import (
	"google.golang.org/protobuf/proto"

	pb "entracte.dev/go/entracte/v1"
)

// inboxView is the open calls as the caller knows them, over any number of connections.
type inboxView struct {
	known      map[string]*pb.PendingCall
	seen       map[string]bool
	told       bool
	inSnapshot bool
}

func newInboxView() *inboxView {
	return &inboxView{known: map[string]*pb.PendingCall{}}
}

// startOver says that a new connection begins, with a snapshot.
func (v *inboxView) startOver() {
	v.seen = map[string]bool{}
	v.inSnapshot = true
}

// change is what is new to the caller; isNew is false if nothing is.
func (v *inboxView) change(message *pb.WatchPendingCallsResponse) (change InboxChange, isNew bool) {
	for _, call := range message.Opened {
		id := call.PendingCallId
		if !proto.Equal(v.known[id], call) {
			change.Opened = append(change.Opened, pendingCallOf(call))
		}
		v.known[id] = call
		if v.inSnapshot {
			v.seen[id] = true
		}
	}
	for _, id := range message.ClosedPendingCallIds {
		v.close(id, &change)
	}
	if message.SnapshotComplete {
		// What was open before and is not in the snapshot was closed in between.
		for id := range v.known {
			if !v.seen[id] {
				v.close(id, &change)
			}
		}
		change.SnapshotComplete = !v.told
		v.told, v.inSnapshot = true, false
	}
	return change, len(change.Opened) > 0 || len(change.Closed) > 0 || change.SnapshotComplete
}

func (v *inboxView) close(id string, change *InboxChange) {
	if _, was := v.known[id]; was {
		delete(v.known, id)
		change.Closed = append(change.Closed, id)
	}
}
