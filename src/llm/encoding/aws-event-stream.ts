/**
 * Parses the AWS binary event stream (`application/vnd.amazon.eventstream`) incrementally. Between chunks, the reader
 * buffers at most one incomplete message. It verifies the checksums of the prelude and of the message.
 */
import { crc32 } from "node:zlib";
import type { PeerInput } from "../../base/peer-inputs.ts";

export interface EventStreamMessage {
  readonly messageType: string;
  readonly type: string;
  readonly payload: Buffer;
}

export interface EventStreamReader {
  /** Calls `onMessage` for each message that the chunk completes. Throws if the bytes are not a valid stream. */
  push(chunk: Buffer): void;
  atBoundary(): boolean;
}

const PRELUDE_BYTES = 12;
const CHECKSUM_BYTES = 4;
const BYTES_HEADER = 6;
const STRING_HEADER = 7;
/** Maps a header type to the size of its value. `BYTES_HEADER` and `STRING_HEADER` values have a variable size. */
const FIXED_BYTES: Readonly<Record<number, number>> = { 0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16 };

export function createEventStreamReader(
  { maxBytes, maxItems }: PeerInput<"AWS event stream">,
  onMessage: (message: EventStreamMessage) => void,
): EventStreamReader {
  /** Chunks are joined only when the prelude or the message is complete, which avoids a copy per chunk. */
  let pieces: Buffer[] = [];
  let heldBytes = 0;
  let neededBytes = PRELUDE_BYTES;
  return {
    atBoundary: () => heldBytes === 0,
    push(chunk) {
      pieces.push(chunk);
      heldBytes += chunk.length;
      if (heldBytes < neededBytes) return;
      let bytes = pieces.length === 1 ? chunk : Buffer.concat(pieces, heldBytes);
      neededBytes = PRELUDE_BYTES;
      while (bytes.length >= PRELUDE_BYTES) {
        const total = bytes.readUInt32BE(0);
        if (total > maxBytes) throw new Error(`an event stream message is larger than ${maxBytes} bytes`);
        if (total < PRELUDE_BYTES + CHECKSUM_BYTES)
          throw new Error("an event stream message is shorter than its frame");
        if (crc32(bytes.subarray(0, 8)) !== bytes.readUInt32BE(8))
          throw new Error("the checksum of an event stream prelude is wrong");
        if (bytes.length < total) {
          neededBytes = total;
          break;
        }
        onMessage(readMessage(bytes.subarray(0, total), maxItems));
        bytes = bytes.subarray(total);
      }
      pieces = bytes.length === 0 ? [] : [bytes];
      heldBytes = bytes.length;
    },
  };
}

function readMessage(frame: Buffer, maxHeaders: number): EventStreamMessage {
  const end = frame.length - CHECKSUM_BYTES;
  if (crc32(frame.subarray(0, end)) !== frame.readUInt32BE(end))
    throw new Error("the checksum of an event stream message is wrong");
  const payloadStart = PRELUDE_BYTES + frame.readUInt32BE(4);
  if (payloadStart > end) throw new Error("the headers of an event stream message are longer than the message");
  let messageType = "event";
  let type = "";
  const headers = frame.subarray(0, payloadStart);
  let count = 0;
  for (let at = PRELUDE_BYTES; at < payloadStart; ) {
    count += 1;
    if (count > maxHeaders) throw new Error(`an event stream message has more than ${maxHeaders} headers`);
    // `headers` ends before the payload, so an invalid length throws instead of reading payload bytes.
    const nameEnd = at + 1 + headers.readUInt8(at);
    const kind = headers.readUInt8(nameEnd);
    const name = headers.toString("latin1", at + 1, nameEnd);
    const fixed = FIXED_BYTES[kind];
    if (fixed === undefined && kind !== BYTES_HEADER && kind !== STRING_HEADER)
      throw new Error("a header of an event stream message has a type that does not exist");
    const valueStart = nameEnd + 1 + (fixed === undefined ? 2 : 0);
    const valueEnd = valueStart + (fixed ?? headers.readUInt16BE(nameEnd + 1));
    if (valueEnd > payloadStart) throw new Error("a header of an event stream message is longer than the headers");
    if (kind === STRING_HEADER) {
      const value = headers.toString("utf8", valueStart, valueEnd);
      if (name === ":message-type") messageType = value;
      else if (name === ":event-type" || name === ":exception-type" || name === ":error-code") type = value;
    }
    at = valueEnd;
  }
  return { messageType, type, payload: frame.subarray(payloadStart, end) };
}
