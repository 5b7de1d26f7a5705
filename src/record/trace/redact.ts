/**
 * Redacts output such as the configuration dump, records, traces, and logs. A value is hidden because of its name or
 * form, or because it repeats a credential of the same request or a secret of the configuration.
 */
import { isCommonHeaderName } from "../../base/header-names.ts";
import { escapeControls } from "../../base/safe-text.ts";
import { decodeString, keyAt, skipSpace, stringEnd } from "../../json/syntax.ts";
import { isSensitiveName } from "./sensitive-names.ts";

export const REDACTED = "<redacted>";

const URL_HEADERS = new Set(["location", "content-location", "referer"]);

const READS_HOST = /\b(?:host|uri)\b/i;

/** Shorter values are not replaced, because they may be ordinary words. */
const MIN_SCRUBBED_CHARS = 6;
/** Shorter parts of a value, such as one cookie of several, are not replaced, because they may be ordinary words. */
const MIN_SCRUBBED_PART_CHARS = 12;

export interface CredentialPlaces {
  readonly headers?: readonly string[];
  readonly parameters?: readonly string[];
}

export interface Redaction {
  isSensitive(headerName: string): boolean;
  /** Hides the values of sensitive headers, and copies of them or of `secrets` in the other headers. */
  headers(pairs: readonly string[], secrets?: readonly string[]): Record<string, string | string[]>;
  /**
   * Returns the credentials in the sensitive headers. Each whole value is included, and also the credential inside it.
   */
  secrets(pairs: readonly string[]): string[];
  query(query: string, alsoHidden?: readonly string[]): string;
  /** Hides the host of a request if the header `host` is sensitive. */
  host(host: string): string;
  /**
   * Redacts text that may quote the values of these headers or other secrets, for example the reason for a rejection.
   */
  scrub(text: string, pairs: readonly string[], secrets?: readonly string[]): string;
  /** Returns false if no text of at most `chars` characters can quote the values of these headers or other secrets. */
  couldQuote(chars: number, pairs: readonly string[], secrets?: readonly string[]): boolean;
  /** Removes secrets of the configuration from any text, for example a log line or the metrics. */
  text(text: string): string;
  headerSetting(name: string, value: string): string;
  expression(source: string, options?: ExpressionOptions): string;
  /** Hides a header whose value an expression computes from the host of the request, if the header `host` is sensitive. */
  hideComputed(name: string, source: string): void;
  /** Adds sensitive names. Names are never removed, because older requests can still be shown. */
  hideAlso(places: CredentialPlaces): void;
  /** Adds secrets of the configuration. They are never removed, because older requests can still be shown. */
  hideValues(values: Iterable<string>): void;
}

export interface ExpressionOptions {
  readonly header?: string | undefined;
  readonly found?: string[] | undefined;
}

export function createRedaction(sensitiveHeaders: readonly string[] = []): Redaction {
  const names = new Set(sensitiveHeaders.map((name) => name.toLowerCase()));
  /** Some servers read `x_api_key` as `x-api-key`, so both spellings are hidden. */
  const isHidden = (name: string): boolean =>
    isSensitiveName(name, "header") || names.has(name) || (name.includes("_") && names.has(name.replaceAll("_", "-")));
  const isHiddenName = (name: string): boolean => {
    const lower = name.toLowerCase();
    return isHidden(name) || (lower !== name && isHidden(lower));
  };
  const parameters = new Set<string>();
  const configured = new SecretValues();
  const shownQuery = (query: string, alsoHidden: readonly string[] = []): string =>
    query === "" ? query : configured.hideIn(redactQuery(query, [...parameters, ...alsoHidden]));
  /** An authorization code is sent to the client in `location` and may return in `referer`. */
  const shownValue = (name: string, value: string): string =>
    URL_HEADERS.has(name) ? value.replace(/(?<=[?#])[^?#]+/g, (query) => shownQuery(query)) : value;
  const headerSecrets = (pairs: readonly string[]): string[] => {
    const found: string[] = [];
    for (let i = 0; i < pairs.length; i += 2)
      if (isHidden(pairs[i] as string)) found.push(...credentialCopies(pairs[i + 1] as string));
    return found;
  };
  return {
    isSensitive: isHiddenName,
    secrets: headerSecrets,
    headers(pairs, secrets = []) {
      const shown: Record<string, string | string[]> = Object.create(null);
      const hidden = [...headerSecrets(pairs), ...secrets];
      for (let i = 0; i < pairs.length; i += 2) {
        const name = pairs[i] as string;
        const value = isHidden(name)
          ? REDACTED
          : shownValue(name, configured.hideIn(withoutCopies(pairs[i + 1] as string, hidden)));
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
      return configured.hideIn(shown);
    },
    couldQuote(chars, pairs, secrets = []) {
      for (const { length } of secrets) if (length >= MIN_SCRUBBED_CHARS && length <= chars) return true;
      for (let i = 0; i < pairs.length; i += 2)
        if (isHidden(pairs[i] as string) && hasSecretWithin(pairs[i + 1] as string, chars)) return true;
      return false;
    },
    query: shownQuery,
    // An empty host means that there is none.
    host: (host) => (host !== "" && names.has("host") ? REDACTED : host),
    text: (text) => configured.hideIn(text),
    headerSetting(name, value) {
      const lower = name.toLowerCase();
      if (isHiddenName(name)) return REDACTED;
      if (URL_HEADERS.has(lower) || isCommonHeaderName(lower)) return redactText(value);
      return couldBeSecret(value) ? REDACTED : redactText(value);
    },
    expression(source, { header, found } = {}) {
      if (header === undefined) return redactExpression(source, isHiddenName, false, found);
      if (isHiddenName(header)) return REDACTED;
      return redactExpression(source, isHiddenName, !isCommonHeaderName(header.toLowerCase()), found);
    },
    hideAlso(places) {
      for (const name of places.headers ?? []) names.add(name.toLowerCase());
      for (const name of places.parameters ?? []) parameters.add(name);
    },
    hideComputed(name, source) {
      if (names.has("host") && READS_HOST.test(source)) names.add(name.toLowerCase());
    },
    hideValues: (values) => configured.add(values),
  };
}

export function redactQuery(query: string, alsoHidden: readonly string[] = []): string {
  return redactPairs(query, (name) => isSensitiveName(name, "query") || alsoHidden.includes(name));
}

/** Redacts a query or a form. */
function redactPairs(text: string, isSecret: (name: string) => boolean): string {
  if (text === "") return text;
  return text
    .split("&")
    .map((part) => {
      const written = part.split("=", 1)[0] ?? "";
      return written.length < part.length && isSecret(decodeSafely(written)) ? `${written}=${REDACTED}` : part;
    })
    .join("&");
}

/** Replaces the secrets, except those shorter than `MIN_SCRUBBED_CHARS`. */
export function withoutSecrets(text: string, secrets: readonly string[]): string {
  let shown = text;
  for (const secret of secrets) if (secret.length >= MIN_SCRUBBED_CHARS) shown = shown.replaceAll(secret, REDACTED);
  return shown;
}

/**
 * Hides copies of these secrets in a value. A copy is the whole value, or a part that is long enough to be a secret.
 */
export function withoutCopies(value: string, secrets: readonly string[]): string {
  let shown = value;
  for (const secret of secrets) {
    if (value === secret) return REDACTED;
    if (secret.length >= MIN_SCRUBBED_PART_CHARS) shown = shown.replaceAll(secret, REDACTED);
  }
  return shown;
}

const PRIVATE_KEY = /-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----/;
/**
 * Some credentials are recognized by their form, such as JSON Web Tokens and keys with the prefix of a well-known
 * issuer.
 */
const KNOWN_FORM =
  /\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|\b(?:sk-|pk_live_|sk_live_|rk_live_|ghp_|gho_|ghs_|ghu_|github_pat_|glpat-|xox[abeoprs]-|AIza|hf_|npm_|pypi-|dop_v1_|SG\.|whsec_|AGE-SECRET-KEY-)[\w.+/=-]{8,}|\bAKIA[0-9A-Z]{16}\b/g;
const URL_IN_TEXT = /[a-z][a-z0-9+.-]{0,30}:\/\/(?:[^\s/?#]*@)?[^\s"'`<>]+/gi;
const WHOLE_URL = /^[a-z][a-z0-9+.-]*:\/\/\S*$/i;
/**
 * Matches a name, a sign, and a value up to the next separator, as in `--token=x`, `Password=x;`, and `X-Api-Key: x`.
 */
const ASSIGNMENT =
  /(^|[^\w.-])(-{0,2}[A-Za-z_][\w.-]{0,127})(\s{0,4}[=:](?!=)\s{0,4})("[^"]*"?|'[^']*'?|[^\s;,&"'][^;,&"'\n]*)/g;
const ONLY_REFERENCES = /^["']?(?:\$\{\w+\})+["']?$/;

/** Hides credentials recognized in the text. `found` collects them, so that they can be hidden elsewhere. */
export function redactText(text: string, found?: string[]): string {
  if (PRIVATE_KEY.test(text)) return REDACTED;
  // In a longer text, a quote ends a URL. A URL on its own may contain quotes.
  const withoutUrls = (
    WHOLE_URL.test(text) ? redactUrl(text, found) : text.replace(URL_IN_TEXT, (url) => redactUrl(url, found))
  ).replace(KNOWN_FORM, (value) => {
    found?.push(value);
    return REDACTED;
  });
  if (!/[=:]/.test(withoutUrls)) return withoutUrls;
  const shown = redactJson(withoutUrls, found);
  return shown.replace(ASSIGNMENT, (all: string, before: string, name: string, sign: string, value: string) => {
    const isScheme = sign === ":" && value.startsWith("//");
    if (isScheme || /^["']?<redacted>/.test(value) || ONLY_REFERENCES.test(value)) return all;
    if (!isSensitiveName(name, "argument")) return all;
    found?.push(...credentialsIn(value));
    return `${before}${name}${sign}${REDACTED}`;
  });
}

export function credentialsIn(value: string): string[] {
  const bare = withoutLiterals(value);
  const constants = [...value.matchAll(LITERAL)].flatMap(({ 0: literal, index }) => {
    const constant = constantIn(literal);
    return isIndex(bare, index, literal.length) || !couldBeSecret(constant) ? [] : [constant];
  });
  return [...credentialCopies(constantIn(value)), ...constants].filter((one) => !one.includes(REDACTED));
}

/**
 * Redacts the arguments of a process, such as `--api-key x` and `-u name:password`, and everything that `redactText`
 * finds.
 */
export function redactArguments(args: readonly string[], found?: string[]): string[] {
  return args.map((argument, i) => {
    const before = args[i - 1];
    const flag = before === undefined ? undefined : /^--?([A-Za-z][\w.-]*)$/.exec(before)?.[1];
    const isCredential =
      flag !== undefined &&
      !argument.startsWith("--") &&
      !ONLY_REFERENCES.test(argument) &&
      (isSensitiveName(flag, "argument") || (/^(?:u|user)$/.test(flag) && argument.includes(":")));
    if (!isCredential) return redactArgument(argument, found);
    found?.push(argument, argument.slice(argument.indexOf(":") + 1));
    return REDACTED;
  });
}

/**
 * Hides everything after the sign in `--token=x`, `TOKEN=x`, and `X-Api-Key: x`, because a value may contain any
 * character.
 */
function redactArgument(argument: string, found?: string[]): string {
  const [start, name = ""] = /^-{0,2}([A-Za-z_][\w.-]{0,127})(?:=|:(?!\/\/)\s*)/.exec(argument) ?? [];
  const value = start === undefined ? "" : argument.slice(start.length);
  if (start === undefined || value === "" || ONLY_REFERENCES.test(value) || !isSensitiveName(name, "argument"))
    return redactText(argument, found);
  found?.push(...credentialsIn(value));
  return `${start}${REDACTED}`;
}

/**
 * Redacts a URL, in which credentials may be before the host, in a parameter of any name, or in the fragment.
 */
export function redactUrl(text: string, found?: string[]): string {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return text;
  // A password may contain an unencoded `@`, so the last `@` before the path ends the password.
  return text
    .replace(/\/\/([^/?#]*)@/, (all: string, user: string) => {
      const password = user.slice(user.indexOf(":") + 1);
      if (ONLY_REFERENCES.test(password)) return all;
      if (user !== REDACTED) found?.push(password, decodeSafely(password));
      return `//${REDACTED}@`;
    })
    .replace(/([?&]([^=&#?]*)=)([^&#]+)/g, (all: string, start: string, name: string, value: string) => {
      if (ONLY_REFERENCES.test(value)) return all;
      // A parameter with another name may be a version or a language, so its value is hidden but not collected as a
      // secret.
      if (isSensitiveName(decodeSafely(name), "query")) found?.push(value, decodeSafely(value));
      return `${start}${REDACTED}`;
    })
    .replace(/#[\s\S]*$/, (fragment) => (fragment.includes("=") ? `#${REDACTED}` : fragment));
}

export function shortSessionId(id: string): string {
  return `${id.slice(0, 8)}…`;
}

const LITERAL = /[rRbB]{0,2}(?:"""[\s\S]*?"""|'''[\s\S]*?'''|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')/g;
const AUTH_SCHEME = /^(?:Bearer|Basic|Digest|Negotiate|Token|ApiKey|DPoP) ?$/i;
const HEADER_READ = /\bheaders(?:\[\s*$|\.(\w+))/;

/**
 * Hides constants of an expression that may be credentials. These are constants compared with a sensitive header or
 * attribute, constants that look like a key and are used with a custom header, and constants of a known form.
 */
function redactExpression(
  source: string,
  isSensitive: (headerName: string) => boolean,
  setsOwnHeader: boolean,
  found?: string[],
): string {
  if (!/["']/.test(source)) return source;
  return splitClauses(source)
    .map((clause) => redactClause(clause, isSensitive, setsOwnHeader, found))
    .join("");
}

function redactClause(
  clause: string,
  isSensitive: (headerName: string) => boolean,
  setsOwnHeader: boolean,
  found?: string[],
): string {
  const bare = withoutLiterals(clause);
  let readsSecret = /\brawToken\b|\bapiKey\.key\b|\bcredentials?\b/.test(bare);
  let isOwnHeader = setsOwnHeader;
  for (const { 0: literal, index } of clause.matchAll(LITERAL)) {
    const name = constantIn(literal);
    if (!isIndex(bare, index, literal.length)) continue;
    if (isSensitive(name)) readsSecret = true;
    else if (HEADER_READ.test(bare.slice(0, index)) && !isCommonHeaderName(name.toLowerCase())) isOwnHeader = true;
  }
  for (const [, name] of bare.matchAll(/\bheaders\.(\w+)/g)) {
    if (isSensitive(name as string)) readsSecret = true;
    else if (!isCommonHeaderName((name as string).toLowerCase())) isOwnHeader = true;
  }
  return clause.replace(LITERAL, (literal: string, at: number) => {
    const value = constantIn(literal);
    if (value === "" || AUTH_SCHEME.test(value) || isIndex(bare, at, literal.length)) return literal;
    if (readsSecret) found?.push(value);
    if (readsSecret || (isOwnHeader && couldBeSecret(value))) return withConstant(literal, REDACTED);
    const shown = redactText(value, found);
    return shown === value ? literal : withConstant(literal, shown);
  });
}

/** Replaces the literals with spaces, so that offsets stay the same. */
function withoutLiterals(source: string): string {
  return source.replace(LITERAL, (literal) => " ".repeat(literal.length));
}

const OPENING = /^[rRbB]{0,2}("""|'''|"|')/;

function constantIn(literal: string): string {
  const [opening, quote] = OPENING.exec(literal) ?? [];
  if (opening === undefined || quote === undefined || !literal.endsWith(quote)) return literal;
  return literal.slice(opening.length, Math.max(opening.length, literal.length - quote.length));
}

function withConstant(literal: string, constant: string): string {
  const [opening = "", quote = ""] = OPENING.exec(literal) ?? [];
  return `${opening}${constant}${quote}`;
}

/** Returns whether the literal is an index, such as the name in `headers["name"]`, which is not a secret. */
function isIndex(bare: string, at: number, length: number): boolean {
  const before = bare.slice(Math.max(0, at - 8), at);
  return /[\w)\]]\s*\[\s*$/.test(before) && !/\bin\s*\[\s*$/.test(before) && /^\s*\]/.test(bare.slice(at + length));
}

/**
 * Splits the source at `&&` and `||` outside brackets. Each clause includes its operator, so the joined clauses equal
 * the source.
 */
function splitClauses(source: string): string[] {
  const bare = withoutLiterals(source);
  const clauses: string[] = [];
  let depth = 0;
  let from = 0;
  for (let i = 0; i < bare.length; i++) {
    const char = bare[i] as string;
    if ("([{".includes(char)) depth += 1;
    else if (")]}".includes(char)) depth -= 1;
    else if (depth === 0 && (char === "&" || char === "|") && bare[i + 1] === char) {
      clauses.push(source.slice(from, i + 2));
      i += 1;
      from = i + 1;
    }
  }
  return [...clauses, source.slice(from)];
}

/**
 * Returns whether a value is one word of at least six characters, with letters and digits, and not a date, version,
 * address, or path.
 */
function couldBeSecret(value: string): boolean {
  const bare = value.replace(/^["']|["']$/g, "");
  if (bare.length < 6 || /[\s/(){}[\]]/.test(bare) || !/\d/.test(bare) || !/[A-Za-z]/.test(bare)) return false;
  return !/^v?\d+(?:\.\d+)*$|^\d{4}-\d{2}-\d{2}|^[\w-]+(?:\.[\w-]+)+(?::\d+)?$|:\d{1,5}$|@/.test(bare);
}

const OAUTH_FIELDS: ReadonlySet<string> = new Set([
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
]);

/** Hides OAuth credentials in a form, in JSON, or in an event stream. */
export function redactBody(bytes: Buffer, contentType: string | undefined): Buffer {
  const type = contentType?.toLowerCase() ?? "";
  if (type.startsWith("application/x-www-form-urlencoded"))
    return Buffer.from(redactPairs(bytes.toString("latin1"), (name) => FORM_FIELDS.has(name.toLowerCase())));
  if (!/json|event-stream|^$/.test(type)) return bytes;
  const text = bytes.toString("latin1");
  const shown = redactMembers(text, (name) => OAUTH_FIELDS.has(name.toLowerCase()));
  return shown === text ? bytes : Buffer.from(shown, "latin1");
}

/** `code` is a credential in a form (RFC 6749 section 4.1.3) and an ordinary word in JSON. */
const FORM_FIELDS: ReadonlySet<string> = new Set([...OAUTH_FIELDS, "code"]);

/** JSON inside strings is searched to this depth. */
const NESTED_JSON_DEPTH = 3;

/**
 * Hides the values of members with sensitive names in text that is or contains JSON and may be truncated anywhere.
 * `found` collects the hidden strings, so that their copies can be hidden elsewhere.
 */
export function redactJson(text: string, found?: string[]): string {
  return redactMembers(text, (name) => isSensitiveName(name, "json"), found, NESTED_JSON_DEPTH);
}

function redactMembers(text: string, isSecret: (name: string) => boolean, found?: string[], depth = 0): string {
  let shown = "";
  let from = 0;
  let at = text.indexOf('"');
  while (at >= 0) {
    const end = stringEnd(text, at);
    let next = skipSpace(text, end);
    if (text[next] === ":") {
      next = skipSpace(text, next + 1);
      if (isSecret(keyAt(text, at, end))) {
        const valueEnd = endOfValue(text, next);
        if (valueEnd > next) {
          found?.push(...stringsIn(text.slice(next, valueEnd)));
          shown += `${text.slice(from, next)}"${REDACTED}"`;
          from = valueEnd;
          next = valueEnd;
        }
      }
    } else if (depth > 0 && end - at > 8) {
      const written = text.slice(at + 1, end - 1);
      if (/\\"\s*:|\\u0022/.test(written)) {
        const inner = decodeString(written);
        const hidden = redactMembers(inner, isSecret, found, depth - 1);
        if (hidden !== inner) {
          shown += text.slice(from, at) + JSON.stringify(hidden);
          from = end;
        }
      }
    }
    at = text.indexOf('"', Math.max(next, end));
  }
  return from === 0 ? text : shown + text.slice(from);
}

/**
 * Returns the offset after a string, number, object, or array. For a literal such as `true`, or if there is no value,
 * it returns `start`.
 */
function endOfValue(text: string, start: number): number {
  const char = text[start];
  if (char === '"') return stringEnd(text, start);
  if (char !== "{" && char !== "[") {
    const number = /-?[0-9][0-9.eE+-]*/y;
    number.lastIndex = start;
    return number.test(text) ? number.lastIndex : start;
  }
  let depth = 0;
  for (let i = start; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === 0x22) i = stringEnd(text, i) - 1;
    else if (code === 0x7b || code === 0x5b) depth += 1;
    else if (code === 0x7d || code === 0x5d) {
      depth -= 1;
      if (depth === 0) return i + 1;
    }
  }
  return text.length;
}

function stringsIn(json: string): string[] {
  const found: string[] = [];
  for (let at = json.indexOf('"'); at >= 0; at = json.indexOf('"', at)) {
    const end = stringEnd(json, at);
    found.push(decodeString(json.slice(at + 1, json[end - 1] === '"' && end - 1 > at ? end - 1 : end)));
    at = end;
  }
  if (found.length === 0) found.push(json);
  return found;
}

/** The forms in which a value may be repeated: as a whole, without its scheme, and each cookie. */
function credentialCopies(value: string): string[] {
  const copies = [value, withoutScheme(value)].filter((copy) => copy !== "");
  if (!value.includes("=") && !value.includes(";")) return copies;
  for (const part of value.split(/;\s*/)) {
    const cookie = part.slice(part.indexOf("=") + 1);
    if (cookie.length >= MIN_SCRUBBED_PART_CHARS) copies.push(cookie);
  }
  return copies;
}

const SECRET_SEPARATORS = /[\s=;,"]+/g;

/** Returns the credential of a value such as `Bearer abc`, or an empty string for one word. */
function withoutScheme(value: string): string {
  const space = value.indexOf(" ");
  return space < 0 ? "" : value.slice(space + 1).trim();
}

function secretsIn(value: string): string[] {
  const parts = value.split(SECRET_SEPARATORS).filter((part) => part.length >= MIN_SCRUBBED_PART_CHARS);
  return [value, withoutScheme(value), ...parts];
}

/**
 * Returns false if none of `secretsIn` has at most `chars` characters. It is called for every request, so it does not
 * split the value.
 */
function hasSecretWithin(value: string, chars: number): boolean {
  const space = value.indexOf(" ");
  if ((space < 0 ? value : value.slice(space + 1).trim()).length <= chars) return true;
  for (let start = 0; ; start = SECRET_SEPARATORS.lastIndex) {
    SECRET_SEPARATORS.lastIndex = start;
    const separator = SECRET_SEPARATORS.exec(value);
    const partChars = (separator?.index ?? value.length) - start;
    if (partChars >= MIN_SCRUBBED_PART_CHARS && partChars <= chars) return true;
    if (separator === null) return false;
  }
}

function decodeSafely(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}

/** The search uses this many characters of each secret. A shorter secret is hidden only if it is the whole value. */
const MIN_VALUE_CHARS = 8;
const MIN_INNER_CHARS = 12;
const BLOCK = 3;
const FULL_SHIFT = MIN_VALUE_CHARS - BLOCK + 1;
const TABLE_SIZE = 1 << 14;
/** Secrets beyond this number are not searched for. */
const MAX_VALUES = 100_000;

/**
 * Finds many secrets in one pass over a text (Wu and Manber). The last three characters of a window of eight determine
 * how far the search can skip.
 */
class SecretValues {
  readonly #known = new Set<string>();
  readonly #byBlock = new Map<number, string[]>();
  #shifts: Uint8Array | undefined = undefined;

  add(values: Iterable<string>): void {
    for (const value of values)
      for (const form of encodedForms(value)) {
        if (this.#known.size >= MAX_VALUES) return;
        if (form.length < MIN_SCRUBBED_CHARS || REDACTED.includes(form) || this.#known.has(form)) continue;
        this.#known.add(form);
        if (form.length >= MIN_VALUE_CHARS && !isOrdinary(form)) this.#index(form);
      }
  }

  #index(secret: string): void {
    this.#shifts ??= new Uint8Array(TABLE_SIZE).fill(FULL_SHIFT);
    for (let end = BLOCK; end <= MIN_VALUE_CHARS; end++) {
      const hash = blockHash(secret, end - BLOCK);
      this.#shifts[hash] = Math.min(this.#shifts[hash] as number, MIN_VALUE_CHARS - end);
    }
    const hash = blockHash(secret, MIN_VALUE_CHARS - BLOCK);
    const same = this.#byBlock.get(hash);
    if (same === undefined) this.#byBlock.set(hash, [secret]);
    // The longest secret comes first, because one secret may be a prefix of another.
    else same.splice(same.findIndex(({ length }) => length < secret.length) >>> 0, 0, secret);
  }

  hideIn(text: string): string {
    if (this.#known.size === 0 || text.length < MIN_SCRUBBED_CHARS) return text;
    if (text.length < 1_024 && this.#known.has(text)) return REDACTED;
    const shifts = this.#shifts;
    if (shifts === undefined) return text;
    let shown = "";
    let from = 0;
    let at = 0;
    while (at + MIN_VALUE_CHARS <= text.length) {
      const hash = blockHash(text, at + MIN_VALUE_CHARS - BLOCK);
      const shift = shifts[hash] as number;
      if (shift > 0) {
        at += shift;
        continue;
      }
      const found = this.#byBlock.get(hash)?.find((secret) => isWhole(text, at, secret));
      if (found === undefined) {
        at += 1;
        continue;
      }
      shown += text.slice(from, at) + REDACTED;
      at += found.length;
      from = at;
    }
    return from === 0 ? text : shown + text.slice(from);
  }
}

/** Digits may be a JSON number, and letters a word, so these secrets are hidden only if they are the whole value. */
function isOrdinary(secret: string): boolean {
  if (/^\d+$/.test(secret) || isCommonHeaderName(secret.toLowerCase())) return true;
  return secret.length < MIN_INNER_CHARS && /^[A-Za-z_ -]+$/.test(secret);
}

function blockHash(text: string, at: number): number {
  const middle = text.charCodeAt(at + 1);
  const sum = text.charCodeAt(at) * 961 + middle * 31 + text.charCodeAt(at + 2);
  return (sum ^ (middle << 7)) & (TABLE_SIZE - 1);
}

/** A short secret may be part of ordinary words, so it counts only at word boundaries. */
function isWhole(text: string, at: number, secret: string): boolean {
  if (!text.startsWith(secret, at)) return false;
  return (
    secret.length >= MIN_INNER_CHARS ||
    !(isWordCode(text.charCodeAt(at - 1)) || isWordCode(text.charCodeAt(at + secret.length)))
  );
}

function isWordCode(code: number): boolean {
  return (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || code === 95 || (code >= 97 && code <= 122);
}

/** The forms in which outputs write a secret: as it is, in JSON, escaped for display, and in a URL. */
function encodedForms(secret: string): Set<string> {
  const json = JSON.stringify(secret).slice(1, -1);
  return new Set([secret, json, escapeControls(secret), escapeControls(json), encodeSafely(secret)]);
}

function encodeSafely(text: string): string {
  try {
    return encodeURIComponent(text);
  } catch {
    // A lone surrogate cannot be encoded in a URL.
    return text;
  }
}

export interface VariableValue {
  readonly name: string;
  readonly value: string;
}

const MIN_VARIABLE_CHARS = 3;

/**
 * Replaces the values of environment variables in a message about a configuration with the variables' names. A value
 * may be a secret in the wrong field, and the error of an expression may quote only a part of it.
 */
export function withVariableNames(message: string, variables: readonly VariableValue[]): string {
  let hidden = message;
  for (const { name, value } of variables) {
    if (value.length < MIN_VARIABLE_CHARS) continue;
    hidden = hidden
      .replaceAll(value, () => `\${${name}}`)
      .replace(/(["`'])([^"`']{3,})\1/g, (quoted, _mark, text: string) =>
        value.includes(text) ? `(a part of \${${name}})` : quoted,
      );
  }
  return hidden;
}
