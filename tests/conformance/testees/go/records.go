package main

import (
	"entracte.dev/go"
)

func (c *command) runsGet() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	if c.asked.OmitResult {
		return c.report(client.Runs.GetWithoutResult(c.ctx, c.asked.RunID))
	}
	return c.report(client.Runs.Get(c.ctx, c.asked.RunID))
}

func (c *command) runsList() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	filter := entracte.RunFilter{
		AgentID: c.asked.AgentID, ThreadID: c.asked.ThreadID, IncludeChildren: c.asked.IncludeChildren, PageSize: c.asked.PageSize,
	}
	for _, state := range c.asked.States {
		filter.States = append(filter.States, entracte.RunState(state))
	}
	return lists(c, client.Runs.List(c.ctx, filter), func(token string) (entracte.Page[*entracte.Run], error) {
		return client.Runs.ListPage(c.ctx, filter, token)
	})
}

func (c *command) runsWatch() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	var list []entracte.WatchOption
	for _, extra := range c.extras() {
		list = append(list, extra)
	}
	if c.asked.UntilFinished {
		list = append(list, entracte.WithUntilFinished())
	}
	ctx, cancel := c.bounded(c.asked.Timeout)
	defer cancel()
	return c.follow(client.Runs.WatchRun(ctx, c.asked.RunID, c.asked.After, list...))
}

func (c *command) runsCancel() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return c.report(client.Runs.Cancel(c.ctx, c.asked.RunID, entracte.CancelOptions{
		Reason: c.asked.Reason, Wait: c.asked.Wait,
	}))
}

func (c *command) runsDelete() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return nil, client.Runs.Delete(c.ctx, c.asked.RunID, entracte.DeleteOptions{Force: c.asked.Force})
}

func (c *command) inboxList() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	filter := entracte.InboxFilter{
		RunID: c.asked.RunID, AgentID: c.asked.AgentID, ThreadID: c.asked.ThreadID, ResourceID: c.asked.ResourceID,
		IncludeDecided: c.asked.IncludeDecided, PageSize: c.asked.PageSize,
	}
	return lists(c, client.Inbox.List(c.ctx, filter), func(token string) (entracte.Page[*entracte.PendingCall], error) {
		return client.Inbox.ListPage(c.ctx, filter, token)
	})
}

func (c *command) inboxGet() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return c.report(client.Inbox.Get(c.ctx, c.asked.PendingCallID))
}

func (c *command) inboxWatch() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.bounded(c.asked.Timeout)
	defer cancel()
	left, err := elements(c, client.Inbox.Watch(ctx, entracte.InboxWatchFilter{
		RunID: c.asked.RunID, AgentID: c.asked.AgentID, ResourceID: c.asked.ResourceID,
	}))
	return map[string]any{"left": left}, err
}

func (c *command) inboxClaim() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return c.report(client.Inbox.Claim(c.ctx, entracte.PendingCallID(c.asked.PendingCallID), entracte.ClaimOptions{
		TTL: duration(c.asked.TTL),
	}))
}

func (c *command) inboxRelease() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return c.report(client.Inbox.Release(c.ctx, entracte.PendingCallID(c.asked.PendingCallID), entracte.ClaimOptions{}))
}

func (c *command) inboxDecisions() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	filter := entracte.DecisionFilter{
		RunID: c.asked.RunID, PendingCallID: c.asked.PendingCallID, Principal: c.asked.Principal, PageSize: c.asked.PageSize,
	}
	return lists(c, client.Inbox.Decisions(c.ctx, filter), func(token string) (entracte.Page[*entracte.Decision], error) {
		return client.Inbox.DecisionsPage(c.ctx, filter, token)
	})
}

func (c *command) threadsCreate() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	thread := entracte.NewThread{
		ThreadID: c.asked.ThreadID, Metadata: optional(c.asked.Metadata), RequestID: c.asked.RequestID,
	}
	if c.asked.Title != nil {
		thread.Title = *c.asked.Title
	}
	return c.report(client.Threads.Create(c.ctx, c.asked.ResourceID, thread))
}

func (c *command) threadsGet() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return c.report(client.Threads.Get(c.ctx, c.asked.ThreadID))
}

func (c *command) threadsList() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	filter := entracte.ThreadFilter{ResourceID: c.asked.ResourceID, PageSize: c.asked.PageSize}
	return lists(c, client.Threads.List(c.ctx, filter), func(token string) (entracte.Page[*entracte.Thread], error) {
		return client.Threads.ListPage(c.ctx, filter, token)
	})
}

func (c *command) threadsUpdate() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return c.report(client.Threads.Update(c.ctx, c.asked.ThreadID, entracte.ThreadUpdate{
		Title: c.asked.Title, Metadata: optional(c.asked.Metadata), RequestID: c.asked.RequestID,
	}))
}

func (c *command) threadsDelete() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	cancelled, err := client.Threads.Delete(c.ctx, c.asked.ThreadID, entracte.DeleteOptions{Force: c.asked.Force})
	return map[string]any{"cancelled_run_ids": cancelled}, err
}

func (c *command) threadsMessages() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	filter := entracte.ThreadMessageFilter{
		RunID: c.asked.RunID, NewestFirst: c.asked.NewestFirst, PageSize: c.asked.PageSize,
	}
	for _, role := range c.asked.Roles {
		filter.Roles = append(filter.Roles, entracte.Role(role))
	}
	return lists(c, client.Threads.Messages(c.ctx, c.asked.ThreadID, filter),
		func(token string) (entracte.Page[*entracte.ThreadMessage], error) {
			return client.Threads.MessagesPage(c.ctx, c.asked.ThreadID, filter, token)
		})
}

func (c *command) owner() entracte.MemoryOwner {
	if c.asked.ThreadID != "" {
		return entracte.OfThread(c.asked.ThreadID)
	}
	return entracte.OfResource(c.asked.ResourceID)
}

func (c *command) workingMemory() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return c.report(client.Threads.WorkingMemory(c.ctx, c.owner()))
}

func (c *command) updateWorkingMemory() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return c.report(client.Threads.UpdateWorkingMemory(c.ctx, c.owner(), entracte.WorkingMemoryUpdate{
		Content: c.asked.Content, ExpectedVersion: c.asked.ExpectedVersion,
	}))
}
