/**
 * Messages: what callers write and what results contain.
 *
 * Wherever messages are taken, four forms will do: a text (one user message), a list of texts, objects with `role`
 * and `content`, and {@link Message} records:
 *
 *     "Refund order 7"
 *     ["Refund order 7", "It arrived broken"]
 *     [{ role: "user", content: "Refund order 7" }]
 *     [{ role: "user", content: [
 *       { type: "text", text: "What is this?" },
 *       { type: "image", image: "https://example.org/cat.png" },
 *     ]}]
 */

import type { Role } from "./enums.js";
import type { Json } from "./json.js";

/** Plain text. */
export interface TextPart {
  readonly type: "text";
  readonly text: string;
  /** Goes back to the provider unchanged. */
  readonly providerMetadata?: Json | undefined;
}

/** A picture: its `url` (handed to the model's provider, the server fetches nothing) or its `data`. */
export interface ImagePart {
  readonly type: "image";
  readonly url: string;
  readonly data: Uint8Array;
  readonly mediaType: string;
}

/** A file: its `url` (handed to the model's provider) or its `data`. */
export interface FilePart {
  readonly type: "file";
  readonly url: string;
  readonly data: Uint8Array;
  readonly mediaType: string;
  readonly filename: string;
}

/** A tool call the model made. */
export interface ToolCallPart {
  readonly type: "tool-call";
  readonly toolCallId: string;
  readonly toolName: string;
  readonly args: Json | undefined;
  /** Goes back to the provider unchanged. */
  readonly providerMetadata?: Json | undefined;
}

/** The answer to a tool call. Every tool call in a history needs exactly one. */
export interface ToolResultPart {
  readonly type: "tool-result";
  readonly toolCallId: string;
  readonly toolName: string;
  readonly result: Json | undefined;
  readonly isError: boolean;
}

/** What the model thought before it spoke. All but `text` goes back to the provider unchanged. */
export interface ReasoningPart {
  readonly type: "reasoning";
  readonly text: string;
  readonly signature?: string | undefined;
  readonly redacted?: string | undefined;
  readonly providerMetadata?: Json | undefined;
}

/** Any part of a message; `part.type` tells which. */
export type MessagePart = TextPart | ImagePart | FilePart | ToolCallPart | ToolResultPart | ReasoningPart;

/** One turn of a conversation, as results have it. */
export interface Message {
  readonly role: Role;
  readonly parts: readonly MessagePart[];
  /** Kept beside the message and never shown to a model. */
  readonly metadata?: Json | undefined;
  /** Made by the server where empty. */
  readonly id?: string;
}

/** The text of a message: its text parts, one after the other. */
export function textOf(message: { readonly parts: readonly { readonly type: string }[] }): string {
  return message.parts.map((part) => (part.type === "text" ? (part as TextPart).text : "")).join("");
}

/** A picture or file to send: a URL, a data URL, base64, or bytes. */
export type Media = string | Uint8Array;

/** A part of a message, as callers write it. A text is a text part; JSON values may be native ones. */
export type MessagePartInput =
  | string
  | MessagePart
  | { readonly type: "text"; readonly text: string; readonly providerMetadata?: unknown }
  | { readonly type: "image"; readonly image: Media; readonly mediaType?: string }
  | { readonly type: "file"; readonly file: Media; readonly mediaType?: string; readonly filename?: string }
  | {
      readonly type: "tool-call";
      readonly toolCallId: string;
      readonly toolName: string;
      readonly args: unknown;
      readonly providerMetadata?: unknown;
    }
  | {
      readonly type: "tool-result";
      readonly toolCallId: string;
      readonly toolName: string;
      readonly result: unknown;
      readonly isError?: boolean;
    }
  | {
      readonly type: "reasoning";
      readonly text?: string;
      readonly signature?: string;
      readonly redacted?: string;
      readonly providerMetadata?: unknown;
    };

/** One message in any of its forms; a text means a user message. */
export type MessageInput =
  | string
  | Message
  | {
      readonly role: Exclude<Role, "unknown">;
      readonly content: string | readonly MessagePartInput[];
      readonly metadata?: unknown;
      readonly id?: string;
    };

/** Messages in any of their forms. */
export type MessagesInput = MessageInput | readonly MessageInput[];
