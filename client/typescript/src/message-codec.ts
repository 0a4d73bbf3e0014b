/** Messages to and from the wire. */

import { create } from "@bufbuild/protobuf";
import { ROLES, type Role } from "./enums.js";
import * as pb from "./gen/entracte/v1/message_pb.js";
import type {
  FilePart,
  ImagePart,
  Media,
  Message,
  MessageInput,
  MessagePart,
  MessagePartInput,
  MessagesInput,
  ReasoningPart,
  TextPart,
} from "./messages.js";
import { jsonOf, toJson, toOptionalJson } from "./outcomes.js";

/** Writes messages in any of their forms; texts get `role`. Throws `TypeError` naming what is wrong. */
export function toMessages(given: MessagesInput, role: Role = "user"): pb.Message[] {
  const items: readonly unknown[] = Array.isArray(given) ? given : [given];
  return items.map((item) => toMessage(item as MessageInput, role));
}

function toMessage(given: MessageInput, role: Role): pb.Message {
  const message: Exclude<MessageInput, string> =
    typeof given === "string" ? { role: role as "user", content: given } : given;
  if (typeof message !== "object" || message === null) {
    throw new TypeError(`a message is a text or an object with role and content, not ${typeof given}`);
  }
  const content = "parts" in message ? message.parts : message.content;
  if (typeof content !== "string" && !Array.isArray(content)) {
    throw new TypeError("a message's content is a text or a list of parts");
  }
  const parts: readonly MessagePartInput[] = typeof content === "string" ? [content] : content;
  return create(pb.MessageSchema, {
    role: ROLES.number(message.role ?? role, "a message's role"),
    parts: parts.map(toPart),
    metadata: toOptionalJson(message.metadata),
    id: message.id ?? "",
  });
}

function toPart(given: MessagePartInput): pb.MessagePart {
  const part = typeof given === "string" ? ({ type: "text", text: given } as const) : given;
  switch (part.type) {
    case "text":
      return create(pb.MessagePartSchema, {
        part: {
          case: "text",
          value: { text: part.text, providerMetadata: toOptionalJson(part.providerMetadata) },
        },
      });
    case "image": {
      const { source, mediaType } = toSource("image" in part ? part.image : part, part.mediaType, "image");
      return create(pb.MessagePartSchema, { part: { case: "image", value: { source, mediaType } } });
    }
    case "file": {
      const { source, mediaType } = toSource("file" in part ? part.file : part, part.mediaType, "file");
      return create(pb.MessagePartSchema, {
        part: { case: "file", value: { source, mediaType, filename: part.filename ?? "" } },
      });
    }
    case "tool-call":
      return create(pb.MessagePartSchema, {
        part: {
          case: "toolCall",
          value: {
            toolCallId: part.toolCallId,
            toolName: part.toolName,
            args: toJson(part.args),
            providerMetadata: toOptionalJson(part.providerMetadata),
          },
        },
      });
    case "tool-result":
      return create(pb.MessagePartSchema, {
        part: {
          case: "toolResult",
          value: {
            toolCallId: part.toolCallId,
            toolName: part.toolName,
            result: toJson(part.result),
            isError: part.isError ?? false,
          },
        },
      });
    case "reasoning":
      return create(pb.MessagePartSchema, { part: { case: "reasoning", value: toReasoning(part) } });
    default:
      throw new TypeError(
        "a part's type is one of text, image, file, tool-call, tool-result, reasoning, " +
          `not ${JSON.stringify((part as { type?: unknown }).type)}`,
      );
  }
}

function toReasoning(part: Extract<MessagePartInput, { type: "reasoning" }>): pb.ReasoningPart {
  const message = create(pb.ReasoningPartSchema, { text: part.text ?? "" });
  if (part.signature !== undefined) message.signature = part.signature;
  if (part.redacted !== undefined) message.redacted = part.redacted;
  const metadata = toOptionalJson(part.providerMetadata);
  if (metadata !== undefined) message.providerMetadata = metadata;
  return message;
}

type Source = { case: "url"; value: string } | { case: "data"; value: Uint8Array };

function toSource(
  given: Media | { url: string; data: Uint8Array },
  mediaType: string | undefined,
  what: string,
): { source: Source; mediaType: string } {
  const media = isMedia(given) ? given : given.data?.length ? given.data : given.url;
  if (!isMedia(media) || media.length === 0) {
    throw new TypeError(`a part of type ${what} needs a URL, a data URL, base64, or bytes`);
  }
  if (typeof media === "string" && media.includes(":")) {
    return { source: { case: "url", value: media }, mediaType: mediaType ?? "" };
  }
  const data = typeof media === "string" ? fromBase64(media, what) : media;
  const type = mediaType || sniffed(data);
  if (!type) throw new TypeError(`a part of type ${what} given as bytes needs a mediaType`);
  return { source: { case: "data", value: data }, mediaType: type };
}

function isMedia(value: unknown): value is Media {
  return typeof value === "string" || value instanceof Uint8Array;
}

function fromBase64(text: string, what: string): Uint8Array {
  if (text.length % 4 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) {
    throw new TypeError(`a text for a part of type ${what} is a URL, a data URL or base64`);
  }
  return new Uint8Array(Buffer.from(text, "base64"));
}

const MAGIC: readonly (readonly [string, string])[] = [
  ["\x89PNG\r\n\x1a\n", "image/png"],
  ["\xff\xd8\xff", "image/jpeg"],
  ["GIF8", "image/gif"],
  ["%PDF-", "application/pdf"],
];

function sniffed(data: Uint8Array): string {
  const start = Buffer.from(data.subarray(0, 12)).toString("latin1");
  if (start.startsWith("RIFF") && start.slice(8) === "WEBP") return "image/webp";
  return MAGIC.find(([magic]) => start.startsWith(magic))?.[1] ?? "";
}

/** Reads a message. Parts that this version does not know are left out. */
export function messageOf(message: pb.Message): Message {
  return {
    role: ROLES.of(message.role),
    parts: message.parts.map(partOf).filter((part) => part !== undefined),
    metadata: jsonOf(message.metadata),
    id: message.id,
  };
}

/** Reads a text. */
export function textPartOf(part: pb.TextPart): TextPart {
  return { type: "text", text: part.text, providerMetadata: jsonOf(part.providerMetadata) };
}

/** Reads a picture. */
export function imageOf(part: pb.ImagePart): ImagePart {
  return { type: "image", ...sourceOf(part.source), mediaType: part.mediaType };
}

/** Reads a file. */
export function fileOf(part: pb.FilePart): FilePart {
  return { type: "file", ...sourceOf(part.source), mediaType: part.mediaType, filename: part.filename };
}

/** Reads a piece of thinking. */
export function reasoningOf(part: pb.ReasoningPart): ReasoningPart {
  return {
    type: "reasoning",
    text: part.text,
    signature: part.signature,
    redacted: part.redacted,
    providerMetadata: jsonOf(part.providerMetadata),
  };
}

function sourceOf(source: pb.ImagePart["source"]): { url: string; data: Uint8Array } {
  return {
    url: source.case === "url" ? source.value : "",
    data: source.case === "data" ? source.value : new Uint8Array(),
  };
}

function partOf({ part }: pb.MessagePart): MessagePart | undefined {
  switch (part.case) {
    case "text":
      return textPartOf(part.value);
    case "image":
      return imageOf(part.value);
    case "file":
      return fileOf(part.value);
    case "toolCall": {
      const { toolCallId, toolName, args, providerMetadata } = part.value;
      const metadata = jsonOf(providerMetadata);
      return { type: "tool-call", toolCallId, toolName, args: jsonOf(args), providerMetadata: metadata };
    }
    case "toolResult": {
      const { toolCallId, toolName, result, isError } = part.value;
      return { type: "tool-result", toolCallId, toolName, result: jsonOf(result), isError };
    }
    case "reasoning":
      return reasoningOf(part.value);
    default:
      return undefined;
  }
}
