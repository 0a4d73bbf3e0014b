"""Images, files and sound as providers take them."""

import base64

from entracte_server.domain.messages import FilePart

_IMAGE_MAGIC = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)


def data_url(data: bytes, media_type: str) -> str:
    """The `data:` URL of some bytes."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def image_url(url: str, data: bytes, media_type: str) -> str:
    """The URL of an image: its own, or one that holds it."""
    if url:
        return url
    if not media_type:
        media_type = next((kind for magic, kind in _IMAGE_MAGIC if data.startswith(magic)), "image/png")
    return data_url(data, media_type)


def sound(part: FilePart) -> dict[str, str] | None:
    """Sound in the form providers take; None for what is not sound, or not here."""
    kind = part.media_type
    if not kind.startswith("audio/") or part.url:
        return None
    audio_format = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav"}.get(kind[6:], kind[6:])
    return {"data": base64.b64encode(part.data).decode(), "format": audio_format}
