"""What has arrived of a model's answer, as it arrives."""

from entracte_server.domain import chunks as c
from entracte_server.domain.messages import AnyPart, ReasoningPart, TextPart
from entracte_server.domain.results import RunError
from entracte_server.domain.runs import (
    CallRow,
    FileRecord,
    Response,
    SourceRecord,
    StepRecord,
)
from entracte_server.models.base import ModelEvent, ModelFinish


class _Block:
    """A text or a piece of thinking while it grows."""

    __slots__ = ("is_text", "metadata", "pieces", "redacted", "signature")

    def __init__(self, is_text: bool) -> None:
        self.is_text = is_text
        self.pieces: list[str] = []
        self.signature: str | None = None
        self.redacted: str | None = None
        self.metadata: str | None = None

    @property
    def is_empty(self) -> bool:
        if self.is_text:
            return not any(self.pieces)
        return not (any(self.pieces) or self.signature or self.redacted or self.metadata)

    def part(self) -> AnyPart | None:
        if self.is_empty:
            return None
        text = "".join(self.pieces)
        if self.is_text:
            return TextPart(text, self.metadata)
        return ReasoningPart(text, self.signature, self.redacted, self.metadata)


class Answer:
    """Collects the events of one attempt. `add` gives back the payloads to show. `shown` tells whether any of
    the answer was: a wait before it, which is a chunk of its own, is not."""

    def __init__(self) -> None:
        self.shown = False
        self.finish: ModelFinish | None = None
        self._blocks: dict[str, _Block] = {}
        self._calls: list[c.ToolCall] = []
        self._sources: list[SourceRecord] = []
        self._files: list[FileRecord] = []

    def add(self, batch: list[ModelEvent]) -> list[c.Payload]:
        """Take a batch in."""
        blocks = self._blocks
        for event in batch:
            kind = type(event)
            if kind is c.TextDelta or kind is c.ReasoningDelta:
                block = blocks.get(event.id)  # type: ignore[union-attr]
                if block is None:
                    block = blocks[event.id] = _Block(kind is c.TextDelta)  # type: ignore[union-attr]
                block.pieces.append(event.text)  # type: ignore[union-attr]
            elif kind is not c.ToolCallDelta:
                self._add_other(event)
        shown = batch if self.finish is None else [e for e in batch if type(e) is not ModelFinish]
        if shown and not (len(shown) == 1 and type(shown[0]) is c.Custom):
            self.shown = True
        return shown  # type: ignore[return-value]

    def _add_other(self, event: ModelEvent) -> None:
        match event:
            case ModelFinish():
                self.finish = event
            case c.TextStart() | c.ReasoningStart():
                block = self._block(event.id, type(event) is c.TextStart)
                block.metadata = event.provider_metadata
            case c.TextEnd() | c.ReasoningEnd():
                block = self._block(event.id, type(event) is c.TextEnd)
                block.metadata = event.provider_metadata or block.metadata
            case c.ReasoningSignature():
                self._block(event.id, False).signature = event.signature
            case c.RedactedReasoning():
                self._block(event.id, False).redacted = event.data
            case c.ToolCall():
                self._calls.append(event)
            case c.Source():
                self._sources.append(SourceRecord(event.id, event.url, event.title, event.provider_metadata))
            case c.File():
                self._files.append(FileRecord(event.media_type, event.data, event.url))
            case _:
                pass

    def _block(self, block_id: str, is_text: bool) -> _Block:
        block = self._blocks.get(block_id)
        if block is None:
            block = self._blocks[block_id] = _Block(is_text)
        return block

    def fault(self) -> RunError | None:
        """Why this answer cannot stand, whatever the provider calls it."""
        finish = self.finish
        if finish is None:
            return RunError("cut", "The model's answer has no end.", retryable=True)
        if self._calls:
            return None
        empty = not (self._sources or self._files) and all(b.is_empty for b in self._blocks.values())
        if finish.dropped_calls and (empty or finish.reason == "tool-calls"):
            return RunError("provider_error", "The model called a tool without naming it.", retryable=True)
        if empty and finish.reason == "other":
            return RunError("empty_stream", "The model's answer has nothing in it.", retryable=True)
        return None

    def record(
        self,
        *,
        step: int,
        attempt: int,
        message_id: str,
        model: str,
        reason: c.FinishReason | None = None,
    ) -> StepRecord:
        """The answer as it is stored. `reason` replaces the model's own when the answer was cut."""
        finish = self.finish or ModelFinish("other")
        return StepRecord(
            step=step,
            attempt=attempt,
            message_id=message_id,
            reason=reason or self._reason(finish),
            usage=finish.usage,
            parts=tuple(p for p in (b.part() for b in self._blocks.values()) if p is not None),
            raw_reason=finish.raw_reason,
            response=Response(
                id=finish.response_id,
                model=finish.response_model,
                time=finish.response_time,
                headers=finish.headers,
                provider_metadata=finish.provider_metadata,
                refused=bool(finish.refusal),
            ),
            warnings=finish.warnings + _dropped(finish),
            sources=tuple(self._sources),
            files=tuple(self._files),
            model=model,
            requested_tools=bool(self._calls) and reason is None,
        )

    def _reason(self, finish: ModelFinish) -> c.FinishReason:
        """Whether there are calls is what counts, not the provider's word for it."""
        if finish.reason == "tool-calls" and not self._calls:
            return "stop"
        return finish.reason

    def call_rows(self, step: int) -> list[CallRow]:
        """The calls of a complete answer, in the model's order."""
        return [
            CallRow(
                call_id=call.tool_call_id,
                step=step,
                index=index,
                tool_name=call.tool_name,
                args=call.args,
                invalid_args=call.invalid_args,
                args_error=call.args_error,
                provider_executed=call.provider_executed,
                provider_metadata=call.provider_metadata,
            )
            for index, call in enumerate(self._calls)
        ]


def _dropped(finish: ModelFinish) -> tuple[str, ...]:
    if not finish.dropped_calls:
        return ()
    return (f"Tool calls without a name were dropped: {finish.dropped_calls}.",)


def is_empty(record: StepRecord) -> bool:
    """Whether an answer has nothing in it."""
    return not (record.parts or record.files or record.sources or record.requested_tools)
