/**
 * Normalizes and validates request paths, so that the gateway and the backend agree on the segments.
 */

/** Matches every path that `canonicalPath` changes or `pathFault` rejects. */
const NOT_PLAIN = /[^!$&-;=@-Z_a-z~]|\/\/|\/\.{1,2}(?:[/;]|$)/;
/** Matches one percent-encoded octet, or characters to encode. */
const TO_NORMALIZE = /%[0-9A-Fa-f]{2}|["<>[\]^`{|}]|[^\x21-\x7e]+/g;
const SLASHES = /\/{2,}/g;

const INCOMPLETE = /%(?![0-9A-Fa-f]{2})/;
/** Matches an octet from 0x20 to 0x7F that is encoded once or several times. */
const ENCODED_ASCII = /%(?:25)*([2-7][0-9A-Fa-f])/g;
/**
 * Each round decodes any number of repeated `%25` encodings. Further rounds decode the encodings that the previous
 * round produced.
 */
const DECODING_ROUNDS = 4;
// biome-ignore lint/suspicious/noControlCharactersInRegex: DEL is one of the rejected characters.
const CONTROL = /%(?:[01][0-9A-Fa-f]|7[Ff])|[\x00-\x1f\x7f]/;
/** Lenient decoders turn overlong UTF-8 such as `%c0%af` into a slash. */
const OVERLONG = /%[Cc][01]%[89ABab]|%[Ee]0%[89]|%[Ff]0%8/;
/** Matches `.` and `..` segments, including those that a server creates by trimming spaces or removing parameters. */
const DOT_SEGMENT = /[/\\]\.{1,2} *(?=[/\\;?#]|$)/;

const MAYBE_AMBIGUOUS = /[%;]|\.(?:\/|$)/;
const ENCODED_SEPARATOR = /%(?:25)*(?:2f|5c)/i;
const PARAMETER = /;|%(?:25)*3b/i;
const ENCODED_TWICE = /%25(?=[0-9a-f]{2})/i;
const SPACE_AT_END = /%20(?=\/|$)/;

/** Returns true only if the path is canonical and valid. */
export function isPlainPath(path: string): boolean {
  return !NOT_PLAIN.test(path);
}

/**
 * Merges repeated slashes, decodes unreserved characters, and encodes characters that are not allowed in a path, with
 * uppercase digits (RFC 3986 section 6.2.2).
 */
export function canonicalPath(path: string): string {
  if (isPlainPath(path)) return path;
  return path.replace(TO_NORMALIZE, normalized).replace(SLASHES, "/");
}

function normalized(piece: string): string {
  if (piece.charCodeAt(0) !== 0x25 /* % */) return percentEncoded(piece);
  const code = Number.parseInt(piece.slice(1), 16);
  return isUnreserved(code) ? String.fromCharCode(code) : piece.toUpperCase();
}

function isUnreserved(code: number): boolean {
  return (
    (code >= 0x61 && code <= 0x7a) ||
    (code >= 0x41 && code <= 0x5a) ||
    (code >= 0x30 && code <= 0x39) ||
    code === 0x2d ||
    code === 0x2e ||
    code === 0x5f ||
    code === 0x7e
  );
}

function percentEncoded(text: string): string {
  let encoded = "";
  for (const octet of Buffer.from(text)) encoded += `%${octet.toString(16).toUpperCase().padStart(2, "0")}`;
  return encoded;
}

/** Returns why the path must be rejected, for example `a dot segment in the path`. */
export function pathFault(path: string): string | undefined {
  if (isPlainPath(path)) return undefined;
  if (path.includes("\\")) return "a backslash in the path";
  if (INCOMPLETE.test(path)) return "an incomplete percent encoding in the path";
  const decoded = decodedFully(path);
  if (decoded === undefined) return "a percent encoding that is nested too deeply in the path";
  if (decoded.includes("%00")) return "a NUL character in the path";
  if (DOT_SEGMENT.test(decoded)) return "a dot segment in the path";
  if (CONTROL.test(decoded)) return "a control character in the path";
  if (OVERLONG.test(decoded)) return "an overlong UTF-8 sequence in the path";
  return undefined;
}

/** Returns false only if `findAmbiguity` and `alternativePaths` find nothing in the canonical path. */
export function mayBeAmbiguous(path: string): boolean {
  return MAYBE_AMBIGUOUS.test(path);
}

/** Returns why a backend may interpret a canonical path differently, for example `an encoded separator`. */
export function findAmbiguity(path: string): string | undefined {
  if (ENCODED_SEPARATOR.test(path)) return "an encoded separator";
  if (PARAMETER.test(path)) return "a path parameter";
  if (ENCODED_TWICE.test(path)) return "a character that is encoded twice";
  return SPACE_AT_END.test(path) ? "a space at the end of a segment" : undefined;
}

/**
 * Returns the canonical paths that lenient backends could serve for this path. Such backends decode everything, and may
 * also remove path parameters, an encoded query or fragment, and trailing dots and spaces of segments.
 */
export function alternativePaths(path: string): readonly string[] {
  const decoded = (decodedFully(path) ?? path).replaceAll("\\", "/");
  const trimmed = beforeQuery(decoded).split("/").map(trimmedSegment).join("/");
  return [decoded, trimmed].map(canonicalPath).filter((reading) => reading !== path);
}

function beforeQuery(path: string): string {
  const end = path.search(/[?#]/);
  return end < 0 ? path : path.slice(0, end);
}

function trimmedSegment(segment: string): string {
  const parameters = segment.indexOf(";");
  let end = parameters < 0 ? segment.length : parameters;
  while (end > 0 && (segment[end - 1] === "." || segment[end - 1] === " ")) end -= 1;
  return segment.slice(0, end);
}

/** Decodes octets from 0x20 to 0x7F repeatedly. Returns undefined if the encoding is nested too deeply. */
function decodedFully(path: string): string | undefined {
  let decoded = path;
  for (let round = 0; round < DECODING_ROUNDS; round++) {
    if (!decoded.includes("%")) return decoded;
    const next = decoded.replace(ENCODED_ASCII, decodedOctet);
    if (next === decoded) return decoded;
    decoded = next;
  }
  return undefined;
}

function decodedOctet(_all: string, hex: string): string {
  return String.fromCharCode(Number.parseInt(hex, 16));
}

/**
 * Encodes a value as one segment of an outgoing path. Returns undefined for values that a server could decode to
 * another number of segments, for example separators, dot segments, and the empty string, and for control characters.
 * Percent-encoding alone does not prevent this.
 */
export function pathSegment(value: string): string | undefined {
  const decoded = decodedFully(value);
  if (decoded === undefined || /[/\\]/.test(decoded) || CONTROL.test(decoded) || OVERLONG.test(decoded))
    return undefined;
  if (trimmedSegment(beforeQuery(decoded)) === "") return undefined;
  try {
    return encodeURIComponent(value);
  } catch {
    // A lone surrogate cannot be percent-encoded.
    return undefined;
  }
}

/** Works like `pathSegment`, for names in which the receiving API expects slashes. */
export function slashedName(value: string, slash: "/" | "%2F"): string | undefined {
  const segments = value.split("/").map(pathSegment);
  return segments.includes(undefined) ? undefined : segments.join(slash);
}

export function pathAndQuery({ path, query }: { readonly path: string; readonly query: string }): string {
  return query === "" ? path : `${path}?${query}`;
}
