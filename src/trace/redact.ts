/**
 * Redaction at the moment something is shown (spec 5.8), by the names of headers, parameters and fields: so what a
 * transformation created is covered too, while CEL and the backend keep the real values.
 */

export const REDACTED = "<redacted>";

/** Always redacted: the two of spec 5.8, cookies, and the usual places of keys that the gateway adds. */
const ALWAYS = [
  "authorization",
  "proxy-authorization",
  "cookie",
  "set-cookie",
  "x-api-key",
  "api-key",
  "x-goog-api-key",
  "x-amz-security-token",
];

/** Parameters that carry credentials in queries (RFC 6750 section 2.3 and the habits of LLM providers). */
const SECRET_PARAMETERS = ["access_token", "refresh_token", "id_token", "client_secret", "api_key", "apikey", "key"];

/** What token endpoints take and give (RFC 6749, 7523, 7636, 8628): hidden in bodies that are forms or JSON. */
const SECRET_FIELDS = [
  "access_token",
  "refresh_token",
  "id_token",
  "client_secret",
  "client_assertion",
  "assertion",
  "subject_token",
  "actor_token",
  "code_verifier",
  "device_code",
  "registration_access_token",
  "password",
];
/** `code` is a credential in a form, and an ordinary word in JSON. */
const FORM_FIELDS = new Set([...SECRET_FIELDS, "code"]);
/** Also where the value is cut off by the end of what was kept, and where the JSON stands inside an event stream. */
const JSON_FIELDS = new RegExp(`("(?:${SECRET_FIELDS.join("|")})"\\s*:\\s*)"(?:[^"\\\\]|\\\\.)*(?:"|$)`, "g");

/** Shorter values are words, not secrets: replacing them everywhere would only spoil the text. */
const MIN_SCRUBBED_CHARS = 6;

export interface Redaction {
  isSensitive(headerName: string): boolean;
  headers(pairs: readonly string[]): Record<string, string | string[]>;
  /** A text that may quote the values of these headers, for example the reason of a refusal. */
  scrub(text: string, pairs: readonly string[]): string;
}

export function createRedaction(sensitiveHeaders: readonly string[] = []): Redaction {
  const names = new Set([...ALWAYS, ...sensitiveHeaders.map((name) => name.toLowerCase())]);
  return {
    isSensitive: (headerName) => names.has(headerName.toLowerCase()),
    headers(pairs) {
      const shown: Record<string, string | string[]> = Object.create(null);
      for (let i = 0; i < pairs.length; i += 2) {
        const name = pairs[i] as string;
        const value = names.has(name) ? REDACTED : (pairs[i + 1] as string);
        const before = shown[name];
        if (before === undefined) shown[name] = value;
        else if (Array.isArray(before)) before.push(value);
        else shown[name] = [before, value];
      }
      return shown;
    },
    scrub(text, pairs) {
      let shown = text;
      for (let i = 0; i < pairs.length; i += 2) {
        if (!names.has(pairs[i] as string)) continue;
        for (const secret of secretsIn(pairs[i + 1] as string)) shown = shown.replaceAll(secret, REDACTED);
      }
      return shown;
    },
  };
}

/** A query string with the values of credential parameters hidden. */
export function redactQuery(query: string, alsoHidden: readonly string[] = []): string {
  if (query === "") return query;
  return query
    .split("&")
    .map((part) => {
      const written = part.split("=", 1)[0] ?? "";
      const name = decodeSafely(written);
      return SECRET_PARAMETERS.includes(name.toLowerCase()) || alsoHidden.includes(name)
        ? `${written}=${REDACTED}`
        : part;
    })
    .join("&");
}

/** A captured body without the tokens and secrets that OAuth endpoints exchange. Other bodies stay as they are. */
export function redactBody(bytes: Buffer, contentType: string | undefined): Buffer {
  const type = contentType?.toLowerCase() ?? "";
  if (type.startsWith("application/x-www-form-urlencoded")) return Buffer.from(redactForm(bytes.toString("latin1")));
  if (!/json|event-stream|^$/.test(type)) return bytes;
  const text = bytes.toString("latin1");
  const shown = text.replace(JSON_FIELDS, `$1"${REDACTED}"`);
  return shown === text ? bytes : Buffer.from(shown, "latin1");
}

function redactForm(form: string): string {
  return form
    .split("&")
    .map((part) => {
      const written = part.split("=", 1)[0] ?? "";
      return FORM_FIELDS.has(decodeSafely(written)) ? `${written}=${REDACTED}` : part;
    })
    .join("&");
}

/** The whole value, and the credential behind its scheme (`Bearer …`): either may be quoted. */
function secretsIn(value: string): string[] {
  const space = value.indexOf(" ");
  const credential = space < 0 ? "" : value.slice(space + 1).trim();
  return [value, credential].filter((secret) => secret.length >= MIN_SCRUBBED_CHARS);
}

function decodeSafely(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}
