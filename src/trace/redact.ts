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

const URL_HEADERS = new Set(["location", "content-location", "referer"]);

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
/** `code` is a credential in a form or a query (RFC 6749 section 4.1.2), and an ordinary word in JSON. */
const FORM_FIELDS = new Set([...SECRET_FIELDS, "code"]);
/** Parameters that carry credentials in queries: also RFC 6750 section 2.3 and the habits of LLM providers. */
const SECRET_PARAMETERS = new Set([...FORM_FIELDS, "api_key", "apikey", "key"]);
/** Also where the value is cut off by the end of what was kept, and where the JSON stands inside an event stream. */
const JSON_FIELDS = new RegExp(`("(?:${SECRET_FIELDS.join("|")})"\\s*:\\s*)"(?:[^"\\\\]|\\\\.)*(?:"|$)`, "gi");

/** Shorter values are words, not secrets: replacing them everywhere would only spoil the text. */
const MIN_SCRUBBED_CHARS = 6;
/** A part of a value, such as one cookie of several, is a secret rather than a word from this length on. */
const MIN_SCRUBBED_PART_CHARS = 12;

/** Where credentials travel, by the configuration: `location` of an API key, the header of a backend's key. */
export interface CredentialPlaces {
  readonly headers?: readonly string[];
  readonly parameters?: readonly string[];
}

export interface Redaction {
  isSensitive(headerName: string): boolean;
  /** A value that repeats one of a sensitive header, or one of `secrets`, is hidden under whatever name it stands. */
  headers(pairs: readonly string[], secrets?: readonly string[]): Record<string, string | string[]>;
  /** What the sensitive ones of these headers carry: each whole value, and the credential in it. */
  secrets(pairs: readonly string[]): string[];
  /** A query string with the values of credential parameters hidden. */
  query(query: string, alsoHidden?: readonly string[]): string;
  /** A text that may quote the values of these headers or other secrets, for example the reason of a refusal. */
  scrub(text: string, pairs: readonly string[], secrets?: readonly string[]): string;
  /** Names only come, with each load of the configuration: requests of an older one are shown for a while. */
  hideAlso(places: CredentialPlaces): void;
}

export function createRedaction(sensitiveHeaders: readonly string[] = []): Redaction {
  const names = new Set([...ALWAYS, ...sensitiveHeaders.map((name) => name.toLowerCase())]);
  /** Some servers read `x_api_key` as `x-api-key`: so do those who look for keys in what we show. */
  const isHidden = (name: string): boolean =>
    names.has(name) || (name.includes("_") && names.has(name.replaceAll("_", "-")));
  const parameters = new Set<string>();
  const shownQuery = (query: string, alsoHidden: readonly string[] = []): string =>
    redactQuery(query, [...parameters, ...alsoHidden]);
  /** An authorization code goes to its client in `location`, and on from there in `referer`. */
  const shownValue = (name: string, value: string): string =>
    URL_HEADERS.has(name) ? value.replace(/(?<=[?#])[^?#]+/g, (query) => shownQuery(query)) : value;
  const secretsOf = (pairs: readonly string[]): string[] => {
    const found: string[] = [];
    for (let i = 0; i < pairs.length; i += 2)
      if (isHidden(pairs[i] as string)) found.push(...copiesOf(pairs[i + 1] as string));
    return found;
  };
  return {
    isSensitive: (headerName) => isHidden(headerName.toLowerCase()),
    secrets: secretsOf,
    headers(pairs, secrets = []) {
      const shown: Record<string, string | string[]> = Object.create(null);
      const hidden = [...secretsOf(pairs), ...secrets];
      for (let i = 0; i < pairs.length; i += 2) {
        const name = pairs[i] as string;
        const value = isHidden(name) ? REDACTED : shownValue(name, withoutCopies(pairs[i + 1] as string, hidden));
        const before = shown[name];
        if (before === undefined) shown[name] = value;
        else if (Array.isArray(before)) before.push(value);
        else shown[name] = [before, value];
      }
      return shown;
    },
    scrub(text, pairs, secrets = []) {
      let shown = withoutSecrets(text, secrets);
      for (let i = 0; i < pairs.length; i += 2) {
        if (isHidden(pairs[i] as string)) shown = withoutSecrets(shown, secretsIn(pairs[i + 1] as string));
      }
      return shown;
    },
    query: shownQuery,
    hideAlso(places) {
      for (const name of places.headers ?? []) names.add(name.toLowerCase());
      for (const name of places.parameters ?? []) parameters.add(name);
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
      return SECRET_PARAMETERS.has(name.toLowerCase()) || alsoHidden.includes(name) ? `${written}=${REDACTED}` : part;
    })
    .join("&");
}

/** A text of somebody who was given these secrets, and may repeat them. */
export function withoutSecrets(text: string, secrets: readonly string[]): string {
  let shown = text;
  for (const secret of secrets) if (secret.length >= MIN_SCRUBBED_CHARS) shown = shown.replaceAll(secret, REDACTED);
  return shown;
}

/** A value without copies of these secrets: all of it, or a part that is long enough to be one. */
export function withoutCopies(value: string, secrets: readonly string[]): string {
  let shown = value;
  for (const secret of secrets) {
    if (value === secret) return REDACTED;
    if (secret.length >= MIN_SCRUBBED_PART_CHARS) shown = shown.replaceAll(secret, REDACTED);
  }
  return shown;
}

/** A configured URL: whoever puts a key into one puts it into a parameter of any name, or before the host. */
export function shownUrl(text: string): string {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return text;
  // A password may hold an `@` that nobody encoded: the last one before the path ends it.
  return text.replace(/\/\/[^/?#]*@/, `//${REDACTED}@`).replace(/([?&][^=&#]*=)[^&#]+/g, `$1${REDACTED}`);
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
      return FORM_FIELDS.has(decodeSafely(written).toLowerCase()) ? `${written}=${REDACTED}` : part;
    })
    .join("&");
}

/** What of a sensitive value may be copied: all of it, the credential behind its scheme, the value of one cookie. */
function copiesOf(value: string): string[] {
  const space = value.indexOf(" ");
  const credential = space < 0 ? "" : value.slice(space + 1).trim();
  const cookies = value
    .split(/;\s*/)
    .map((part) => part.slice(part.indexOf("=") + 1))
    .filter((part) => part.length >= MIN_SCRUBBED_PART_CHARS);
  return [value, credential, ...cookies].filter((one) => one !== "");
}

/** The whole value, the credential behind its scheme (`Bearer …`), and long parts: any of them may be quoted. */
function secretsIn(value: string): string[] {
  const space = value.indexOf(" ");
  const credential = space < 0 ? "" : value.slice(space + 1).trim();
  const parts = value.split(/[\s=;,"]+/).filter((part) => part.length >= MIN_SCRUBBED_PART_CHARS);
  return [value, credential, ...parts];
}

function decodeSafely(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}
