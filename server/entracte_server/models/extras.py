"""What an answer holds besides text, reasoning and calls: sources, images, audio."""

import base64
import binascii
from typing import Any

from entracte_server.domain import json_text
from entracte_server.domain.chunks import File, Source
from entracte_server.models.base import ModelEvent
from entracte_server.models.provider_json import json_of


class Extras:
    """Sources and files of one answer. Each source is reported once, however often it is repeated."""

    def __init__(self) -> None:
        self._urls: set[str] = set()
        self._last_citations: Any = None
        self._audio = bytearray()
        self._audio_format = ""

    @property
    def audio_bytes(self) -> int:
        """How much audio there is so far: it shows as an event only at the end."""
        return len(self._audio)

    def chunk(self, chunk: dict[str, Any], out: list[ModelEvent]) -> None:
        """Takes what stands beside the choices: lists of cited pages."""
        citations = chunk.get("citations")
        if not citations or citations == self._last_citations or not isinstance(citations, list):
            return
        self._last_citations = citations
        results = chunk.get("search_results")
        titles = {
            result["url"]: result.get("title")
            for result in (results if isinstance(results, list) else [])
            if isinstance(result, dict) and isinstance(result.get("url"), str)
        }
        for citation in citations:
            if isinstance(citation, str):
                self._source(citation, titles.get(citation), None, out)
            elif isinstance(citation, dict):
                self._source(citation.get("url"), citation.get("title"), citation, out)

    def delta(self, delta: dict[str, Any], out: list[ModelEvent]) -> str:
        """Takes annotations, images and audio of a delta; gives the words spoken, if any."""
        annotations = delta.get("annotations")
        if annotations and isinstance(annotations, list):
            for annotation in annotations:
                if isinstance(annotation, dict):
                    cited = annotation.get("url_citation")
                    cited = cited if isinstance(cited, dict) else annotation
                    self._source(cited.get("url"), cited.get("title"), annotation, out)
        images = delta.get("images")
        if images and isinstance(images, list):
            for image in images:
                if isinstance(image, dict):
                    self.part(image, out)
        audio = delta.get("audio")
        if not audio or not isinstance(audio, dict):
            return ""
        data = audio.get("data")
        if data and isinstance(data, str):
            self._audio += _bytes(data)
        if isinstance(audio.get("format"), str):
            self._audio_format = json_text.scrub(audio["format"])
        transcript = audio.get("transcript")
        return transcript if isinstance(transcript, str) and not delta.get("content") else ""

    def part(self, part: dict[str, Any], out: list[ModelEvent]) -> None:
        """Takes one image of an answer."""
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        if not isinstance(url, str) or not url:
            return
        if not url.startswith("data:"):
            out.append(File("image/*", url=json_text.scrub(url)))
            return
        head, _, body = url[5:].partition(",")
        media_type = json_text.scrub(head.partition(";")[0]) or "image/png"
        if data := _bytes(body):
            out.append(File(media_type, data))

    def finish(self, out: list[ModelEvent]) -> None:
        """Gives the audio, which is whole only at the end."""
        if self._audio:
            out.append(File(f"audio/{self._audio_format or 'wav'}", bytes(self._audio)))

    def _source(self, url: Any, title: Any, record: Any, out: list[ModelEvent]) -> None:
        if not isinstance(url, str) or not url or url in self._urls:
            return
        self._urls.add(url)
        metadata = json_of(record) if record is not None else None
        title = json_text.scrub(title) if isinstance(title, str) else ""
        out.append(Source(f"s{len(self._urls) - 1}", json_text.scrub(url), title, metadata))


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return b""
