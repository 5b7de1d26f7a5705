/**
 * Decodes text inside base64 and data URLs, and recognizes binary data by its first bytes.
 */

export interface EncodedText {
  readonly text: string;
  encode(text: string): string;
}

export const SAMPLED_CHARACTERS = 1_024;

const DATA_URL = /^data:([^,]{0,256}),/i;
const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/;
const TEXT_TYPE =
  /^(?:text\/|application\/(?:[\w.+-]*\+)?(?:json|xml|yaml|javascript|x-ndjson|csv)\b|(?:txt|md|csv|html|json|xml)$)/i;

/**
 * Decides by its first bytes whether a value is binary. A value declared as text is never binary. `isBase64` states
 * that a value that is not a data URL is base64.
 */
export function isBinary(start: string, isBase64: boolean, mediaType: string): boolean {
  const header = DATA_URL.exec(start);
  if (isTextType(header?.[1] || mediaType)) return false;
  if (header ? !isBase64Type(header[1] ?? "") : !isBase64) return false;
  const payload = start.slice(header?.[0].length ?? 0);
  // Four base64 characters encode three bytes, so only whole groups are decoded.
  const sample = payload.length < 4 ? payload : payload.slice(0, payload.length & ~3);
  return BASE64.test(sample) && !isText(Buffer.from(sample, "base64"));
}

/** Returns undefined if the value is not encoded, or its base64 is empty or invalid. */
export function decodeText(value: string, isBase64: boolean): EncodedText | undefined {
  const header = DATA_URL.exec(value);
  const start = header?.[0] ?? "";
  const payload = value.slice(start.length);
  if (header && !isBase64Type(header[1] ?? ""))
    return { text: percentDecoded(payload), encode: (text) => start + encodeURIComponent(text) };
  if (payload === "" || !(header || isBase64) || !BASE64.test(payload)) return undefined;
  return {
    text: Buffer.from(payload, "base64").toString("utf8"),
    encode: (text) => start + Buffer.from(text).toString("base64"),
  };
}

export function isTextType(mediaType: string): boolean {
  return TEXT_TYPE.test(mediaType);
}

function isBase64Type(type: string): boolean {
  return /;\s*base64\s*$/i.test(type);
}

/** Accepts UTF-8 without control characters other than white space. The last character may be incomplete. */
function isText(bytes: Buffer): boolean {
  const text = bytes.toString("utf8").slice(0, -3);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they distinguish binary data from text
  return !/[\u0000-\u0008\u000b\u000e-\u001f\ufffd]/.test(text);
}

function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
