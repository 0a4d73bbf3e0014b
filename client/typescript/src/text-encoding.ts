/** How the texts of messages are read. */

import { configureTextEncoding, getTextEncoding } from "@bufbuild/protobuf/wire";

/**
 * Have texts keep a U+FEFF at their beginning. The protobuf library's own decoder takes it for a byte order mark and
 * leaves it out, but a piece of an answer may well begin with one. This holds for all messages in the process.
 */
export function keepByteOrderMarks(): void {
  const lenient = new TextDecoder("utf-8", { ignoreBOM: true });
  const strict = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });
  configureTextEncoding({
    ...getTextEncoding(),
    decodeUtf8: (bytes, isStrict) => (isStrict ? strict : lenient).decode(bytes),
  });
}
