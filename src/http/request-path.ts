/**
 * Normalizes and validates request paths. Every decision by path (routes, rules, limits, caches) and every forwarded
 * path uses the canonical form, so that the gateway and the backend see the same segments. Paths that a backend could
 * read in two ways are rejected: some always (`pathFault`), others only where a decision depends on them
 * (`ambiguityIn`, `otherReadings`).
 */

/** Anything that `canonicalPath` changes or `pathFault` rejects. Most paths do not match. */
const NOT_PLAIN = /[^!$&-;=@-Z_a-z~]|\/\/|\/\.{1,2}(?:[/;]|$)/;
/** One percent-encoded octet, or characters that RFC 3986 does not allow unencoded in a path. */
const TO_NORMALIZE = /%[0-9A-Fa-f]{2}|["<>[\]^`{|}]|[^\x21-\x7e]+/g;
const SLASHES = /\/{2,}/g;

const INCOMPLETE = /%(?![0-9A-Fa-f]{2})/;
/** An encoded ASCII octet from space on, encoded once or several times. */
const ENCODED_ASCII = /%(?:25)*([2-7][0-9A-Fa-f])/g;
/** Enough for paths that were encoded by several proxies. Each round undoes any number of plain nestings. */
const DECODING_ROUNDS = 4;
// biome-ignore lint/suspicious/noControlCharactersInRegex: DEL is one of the rejected characters.
const CONTROL = /%(?:[01][0-9A-Fa-f]|7[Ff])|[\x00-\x1f\x7f]/;
/** UTF-8 that encodes a character in more bytes than it needs: careless decoders read `%c0%af` as a slash. */
const OVERLONG = /%[Cc][01]%[89ABab]|%[Ee]0%[89]|%[Ff]0%8/;
/** `.` and `..` as segments, also where a server trims spaces or cuts parameters off. */
const DOT_SEGMENT = /[/\\]\.{1,2} *(?=[/\\;?#]|$)/;

const MAYBE_AMBIGUOUS = /[%;]|\.(?:\/|$)/;
const ENCODED_SEPARATOR = /%(?:25)*(?:2f|5c)/i;
const PARAMETER = /;|%(?:25)*3b/i;
const ENCODED_TWICE = /%25(?=[0-9a-f]{2})/i;
const SPACE_AT_END = /%20(?=\/|$)/;

/** Whether the path is canonical and without fault, as nearly all paths are. One test where both would be needed. */
export function isPlainPath(path: string): boolean {
  return !NOT_PLAIN.test(path);
}

/**
 * Returns the canonical spelling of a path: repeated slashes merged, unreserved characters decoded, other octets
 * encoded with uppercase digits (RFC 3986 section 6.2.2), and characters that must be encoded encoded. Paths that
 * differ under RFC 3986 in more than repeated slashes stay different.
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

/** Returns why no route may serve the received path, for example `a dot segment in the path`. */
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

/** Whether `ambiguityIn` or `otherReadings` may find something in a canonical path. */
export function mayBeAmbiguous(path: string): boolean {
  return MAYBE_AMBIGUOUS.test(path);
}

/**
 * Returns why rules about a canonical path may not hold for the path that a backend reads, for example `an encoded
 * separator`. Routes with authentication or authorization reject such paths.
 */
export function ambiguityIn(path: string): string | undefined {
  if (ENCODED_SEPARATOR.test(path)) return "an encoded separator";
  if (PARAMETER.test(path)) return "a path parameter";
  if (ENCODED_TWICE.test(path)) return "a character that is encoded twice";
  return SPACE_AT_END.test(path) ? "a space at the end of a segment" : undefined;
}

/**
 * Returns the canonical paths that lenient backends could read instead of this one: with everything decoded, and also
 * without path parameters, without the part after an encoded `?` or `#`, and without trailing dots and spaces in
 * segments.
 */
export function otherReadings(path: string): readonly string[] {
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

/** Decodes every ASCII octet, however often it was encoded; undefined if it was encoded too often. */
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
 * Encodes a value as one segment of an outgoing path. Returns undefined for values that a server could read as more or
 * fewer segments, however often it decodes: separators, dots, control characters, the empty string. Percent-encoding
 * alone does not prevent that.
 */
export function pathSegment(value: string): string | undefined {
  const decoded = decodedFully(value);
  if (decoded === undefined || /[/\\]/.test(decoded) || CONTROL.test(decoded) || OVERLONG.test(decoded))
    return undefined;
  if (trimmedSegment(beforeQuery(decoded)) === "") return undefined;
  try {
    return encodeURIComponent(value);
  } catch {
    // A lone surrogate has no encoding.
    return undefined;
  }
}

/**
 * Like `pathSegment`, for names in which the receiving API expects slashes. Each part must be a valid segment, so that
 * no reading of the name leaves its place in the path.
 */
export function slashedName(value: string, slash: "/" | "%2F"): string | undefined {
  const segments = value.split("/").map(pathSegment);
  return segments.includes(undefined) ? undefined : segments.join(slash);
}

export function pathAndQuery({ path, query }: { readonly path: string; readonly query: string }): string {
  return query === "" ? path : `${path}?${query}`;
}
