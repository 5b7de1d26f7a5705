/**
 * Encodes HTTP/2 frames, including those that no library would write: header lists are literals without Huffman coding
 * and without any check. Reading returns frames, not fields; the body identifies the response.
 */
export const TYPE = {
  data: 0, headers: 1, priority: 2, reset: 3, settings: 4, push: 5, ping: 6, goaway: 7, window: 8, continuation: 9,
}; // biome-ignore format: a table
export const FLAG = { endStream: 1, ack: 1, endHeaders: 4, padded: 8, priority: 32 };
export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");
const HEAD_BYTES = 9;
const LARGEST_WINDOW = 2 ** 31 - 1;
/** Leaves space for additions. */
const OUR_WINDOW = 2 ** 30;
const FIRST_WINDOW = 65_535;

export function frame(type, flags, stream, payload = Buffer.alloc(0)) {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream >>> 0, 5);
  return Buffer.concat([head, payload]);
}

export function number(...values) {
  const bytes = Buffer.alloc(4 * values.length);
  for (const [i, value] of values.entries()) bytes.writeUInt32BE(value >>> 0, 4 * i);
  return bytes;
}

/** Windows so large that no response waits for flow control. */
export function opening() {
  const settings = Buffer.concat([Buffer.from([0, 4]), number(OUR_WINDOW)]);
  return Buffer.concat([
    PREFACE,
    frame(TYPE.settings, 0, 0, settings),
    frame(TYPE.window, 0, 0, number(OUR_WINDOW - FIRST_WINDOW)),
  ]);
}

/** `fields`: pairs of texts, taken as they are. */
export function fieldBlock(fields) {
  return Buffer.concat(
    fields.flatMap(([name, value]) => [Buffer.from([0]), literal(String(name)), literal(String(value))]),
  );
}

function literal(text) {
  const bytes = Buffer.from(text, "latin1");
  if (bytes.length < 127) return Buffer.concat([Buffer.from([bytes.length]), bytes]);
  const length = [127];
  let rest = bytes.length - 127;
  for (; rest >= 128; rest = Math.floor(rest / 128)) length.push((rest % 128) | 128);
  return Buffer.concat([Buffer.from([...length, rest]), bytes]);
}

/** Calls `onFrame(type, flags, stream, payload)` for each complete frame in the pushed bytes. */
export function frameReader(onFrame) {
  let unread = Buffer.alloc(0);
  return (chunk) => {
    unread = unread.length === 0 ? chunk : Buffer.concat([unread, chunk]);
    while (unread.length >= HEAD_BYTES) {
      const length = unread.readUIntBE(0, 3);
      if (unread.length < HEAD_BYTES + length) return;
      onFrame(
        unread[3],
        unread[4],
        unread.readUInt32BE(5) & LARGEST_WINDOW,
        unread.subarray(HEAD_BYTES, HEAD_BYTES + length),
      );
      unread = unread.subarray(HEAD_BYTES + length);
    }
  };
}
