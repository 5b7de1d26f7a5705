/**
 * Decides by its name whether a header, query parameter, form field, JSON member, process argument, or environment
 * variable carries a credential. Names are split into words at punctuation and changes of case, so `x-vault-token`,
 * `accessToken`, and `X-Amz-Signature` match but `max_tokens` and `monkey` do not.
 */

/**
 * One of these words anywhere in a name makes it sensitive, unless a rule below classifies the name as a description.
 */
const CREDENTIAL_WORDS: ReadonlySet<string> = new Set(
  (
    "auth authn authz secrets sig signatures hmac session sessions sessid sid phpsessid passwords passphrase passcode pass " +
    "pwd pw otp totp cred creds assertion bearer cookie cookies verifier csrf xsrf dpop apikeys userpass samlresponse " +
    "samlrequest connectionstring"
  ).split(" "),
);

/**
 * A word with one of these endings also makes a name sensitive, because header names lose their capitals and
 * `xAuthToken` arrives as `xauthtoken`.
 */
const CREDENTIAL_ENDINGS =
  /(?:token|secret|password|passwd|authorization|signature|sessionid|jwt|credentials?|(?:api|access|secret|private|auth|shared|signing|encryption|subscription|session)key)$/;

/** `tokens` after one of these words are credentials, as in `refresh_tokens`. In `max_tokens` they are a count. */
const TOKEN_QUALIFIERS: ReadonlySet<string> = new Set(["access", "refresh", "api", "id"]);

/**
 * Keys with these qualifiers are identifiers and grant no access. A key with another qualifier counts as a credential,
 * except in `key_id`.
 */
const ORDINARY_KEYS: ReadonlySet<string> = new Set(
  (
    "idempotency websocket cache surrogate partition sort primary foreign public routing shard group object row column " +
    "dedup deduplication ordering message entity lookup range translation locale issue project page next start last " +
    "resource natural composite unique hash map affinity bucket file"
  ).split(" "),
);

/**
 * A name of several words that ends in one of these is a description, such as `token_type`, `session-affinity`, and
 * `authorization_endpoint`.
 */
const DESCRIBING_WORDS: ReadonlySet<string> = new Set(
  (
    "type types count counts limit limits endpoint endpoints url uri hint expires expiry expiration ttl lifetime length " +
    "size algorithm algorithms alg method methods usage budget name names status mode scheme version format provider " +
    "location scope scopes server servers required enabled supported remaining reset affinity path file age"
  ).split(" "),
);

/** These names match a rule above but never carry a credential. */
const EXCEPTIONS: ReadonlySet<string> = new Set(["access-control-allow-credentials"]);

export type NamePlace = "header" | "query" | "json" | "argument";

/** Clients can choose names, so the cache is bounded in entries and in the length of a name. */
const CACHED_NAMES = 4_096;
const CACHED_CHARS = 64;
/** To bound the work, longer names are not split and count as sensitive. */
const MAX_NAME_CHARS = 512;

const caches: Readonly<Record<NamePlace, Map<string, boolean>>> = {
  header: new Map(),
  query: new Map(),
  json: new Map(),
  argument: new Map(),
};

export function isSensitiveName(name: string, place: NamePlace): boolean {
  const cache = caches[place];
  const known = cache.get(name);
  if (known !== undefined) return known;
  const verdict = name.length > MAX_NAME_CHARS || isCredential(name, place);
  if (name.length <= CACHED_CHARS) {
    if (cache.size >= CACHED_NAMES) cache.clear();
    cache.set(name, verdict);
  }
  return verdict;
}

function isCredential(name: string, place: NamePlace): boolean {
  const words = splitWords(name);
  const last = words.at(-1);
  if (last === undefined || EXCEPTIONS.has(words.join("-"))) return false;
  if (words.length === 1) {
    // `key` and `code` are members of ordinary JSON. In a query they are an API key and an authorization code.
    if (last === "key") return place !== "json";
    if (last === "code") return place === "query";
    if (last === "pass" && place === "json") return false;
  }
  if (words.length > 1 && DESCRIBING_WORDS.has(last)) return false;
  if (words.some((word) => CREDENTIAL_WORDS.has(word) || CREDENTIAL_ENDINGS.test(word))) return true;
  return words.some((word, i) => {
    const before = words[i - 1];
    const after = words[i + 1];
    if (word === "tokens") return before !== undefined && TOKEN_QUALIFIERS.has(before);
    if (word === "key") return after !== "id" && (before === undefined || !ORDINARY_KEYS.has(before));
    if (word === "keys") return before === "api" || before === "access" || before === "private";
    // RFC 8628 defines `device_code` and `user_code`.
    if (word === "code") return before === "device" || before === "user" || (before === "auth" && after === undefined);
    return word === "connection" && after === "string";
  });
}

function splitWords(name: string): string[] {
  return name
    .replace(/([a-z0-9])([A-Z])/g, "$1-$2")
    .replace(/([A-Z])([A-Z][a-z])/g, "$1-$2")
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== "");
}
