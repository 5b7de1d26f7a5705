/**
 * Encodes messages of the AWS binary event stream for test providers.
 */
import { crc32 } from "node:zlib";

export function encodeEventStreamMessage(
  type: string,
  payload: unknown,
  messageType: "event" | "exception" = "event",
): Buffer {
  const headers = Buffer.concat([
    stringHeader(messageType === "event" ? ":event-type" : ":exception-type", type),
    stringHeader(":content-type", "application/json"),
    stringHeader(":message-type", messageType),
  ]);
  const body = Buffer.from(JSON.stringify(payload));
  const prelude = Buffer.alloc(12);
  prelude.writeUInt32BE(12 + headers.length + body.length + 4, 0);
  prelude.writeUInt32BE(headers.length, 4);
  prelude.writeUInt32BE(crc32(prelude.subarray(0, 8)), 8);
  const frame = Buffer.concat([prelude, headers, body]);
  const checksum = Buffer.alloc(4);
  checksum.writeUInt32BE(crc32(frame), 0);
  return Buffer.concat([frame, checksum]);
}

function stringHeader(name: string, value: string): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(Buffer.byteLength(value), 0);
  return Buffer.concat([Buffer.from([name.length]), Buffer.from(name), Buffer.from([7]), length, Buffer.from(value)]);
}
