/**
 * Supports client ID metadata documents. The client's ID is the URL of a document that describes the client, so the
 * client needs no registration. The document must be on a configured host, to prevent SSRF, and contain its own URL.
 */

import type { Clock } from "../../base/clock.ts";
import { type FormPair, newForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Fetch } from "../../http/fetch.ts";
import { canonicalPattern, hostOf, isLoopbackHost, matchesHost } from "../../http/host.ts";
import { readJson } from "../../json/read-json.ts";
import { parseForm, serializeForm } from "../providers/oauth-form.ts";
import { errorDetail, OAuthRequestError } from "../providers/provider.ts";

const DOCUMENT = peerInput("client/metadata-document");

const FETCH_MS = 5_000;
const MAX_KEPT_DOCUMENTS = 256;
const KEPT_MS = 600_000;
const FAILED_MS = 10_000;

export interface ClientMetadataOptions {
  /** A host may start with a wildcard, for example `*.example.com`. */
  readonly hosts: readonly string[];
  readonly clientId: string;
  readonly fetch: Fetch;
  readonly clock: Clock;
}

export interface ClientMetadata {
  /**
   * Rewrites the query of an authorize request for the provider. `allow` is called before anything is fetched, and may
   * throw. `client` is the URL of the client's document, if it has one.
   */
  authorize(query: string, allow: () => void): Promise<{ readonly query: string; readonly client?: string }>;
  /** Returns whether the document of a client is at a host that the configuration accepts. */
  accepts(client: string): boolean;
  token(form: string): string;
}

export function createClientMetadata({ hosts, clientId, fetch, clock }: ClientMetadataOptions): ClientMetadata {
  const kept = new Map<string, { readonly uris: Promise<readonly string[]>; untilMs: number }>();

  function redirectUris(url: string, allow: () => void): Promise<readonly string[]> {
    const nowMs = clock.monotonicMs();
    const known = kept.get(url);
    if (known && known.untilMs > nowMs) return known.uris;
    allow();
    if (kept.size >= MAX_KEPT_DOCUMENTS) kept.clear();
    const entry = { uris: readUris(url, fetch), untilMs: nowMs + KEPT_MS };
    entry.uris.catch(() => {
      entry.untilMs = clock.monotonicMs() + FAILED_MS;
    });
    kept.set(url, entry);
    return entry.uris;
  }

  return {
    async authorize(query, allow) {
      const pairs = parseForm(query);
      const url = documentUrl(pairs, hosts);
      if (url === undefined) return { query };
      const uris = await redirectUris(url, allow);
      const asked = pairs.filter(({ name }) => name.toLowerCase() === "redirect_uri");
      const [only] = asked;
      if (only === undefined || asked.length > 1 || !uris.some((uri) => isSameAddress(uri, only.value)))
        throw new OAuthRequestError("invalid_request", "redirect_uri is not in the client's metadata document");
      return { query: replaced(pairs, clientId), client: url };
    },
    accepts: (client) => URL.canParse(client) && isAccepted(new URL(client), hosts),
    token(form) {
      const pairs = parseForm(form);
      return documentUrl(pairs, hosts) === undefined ? form : replaced(pairs, clientId);
    },
  };
}

/** Returns undefined unless the client ID is an https URL. */
function documentUrl(pairs: readonly FormPair[], hosts: readonly string[]): string | undefined {
  const ids = pairs.filter(({ name }) => name.toLowerCase() === "client_id");
  const id = ids[0]?.value;
  if (id === undefined || !/^https:/i.test(id)) return undefined;
  if (ids.length > 1) throw new OAuthRequestError("invalid_request", "the parameter client_id is repeated");
  const url = URL.canParse(id) ? new URL(id) : undefined;
  const isPlain =
    url?.href === id && url.pathname !== "/" && url.username === "" && url.password === "" && !/[?#]/.test(id);
  if (!isPlain || !isAccepted(url, hosts))
    throw new OAuthRequestError("invalid_client", "the client's metadata document is not at an accepted host");
  return id;
}

function isAccepted({ port, host }: URL, hosts: readonly string[]): boolean {
  return port === "" && hosts.some((pattern) => matchesHost(canonicalPattern(pattern), hostOf(host)));
}

async function readUris(url: string, fetch: Fetch): Promise<readonly string[]> {
  let document: Readonly<Record<string, unknown>>;
  try {
    const response = await fetch({ url, timeoutMs: FETCH_MS, input: DOCUMENT });
    if (response.status !== 200) throw new Error(`status ${response.status}`);
    document = readJson(DOCUMENT, response.body) as Readonly<Record<string, unknown>>;
  } catch (error) {
    throw new OAuthRequestError(
      "invalid_client",
      `the client's metadata document cannot be read: ${errorDetail(error).slice(0, 100)}`,
    );
  }
  if (document?.client_id !== url)
    throw new OAuthRequestError("invalid_client", "the client's metadata document is about another client");
  const { redirect_uris: uris } = document;
  return Array.isArray(uris) ? uris.filter((uri) => typeof uri === "string") : [];
}

export function isLoopbackAddress(address: string): boolean {
  if (!URL.canParse(address) || address.includes("#")) return false;
  const { protocol, host, username, password } = new URL(address);
  return protocol === "http:" && isLoopbackHost(hostOf(host)) && username === "" && password === "";
}

/**
 * Compares addresses exactly, except that any port matches for http on loopback, because clients listen on any free
 * port (RFC 8252 section 7.3).
 */
export function isSameAddress(named: string, asked: string): boolean {
  if (named === asked) return true;
  if (!URL.canParse(named) || !URL.canParse(asked)) return false;
  const [one, other] = [new URL(named), new URL(asked)];
  if (one.protocol !== "http:" || !isLoopbackHost(hostOf(one.host)) || other.username !== "") return false;
  one.port = "";
  other.port = "";
  return one.href === other.href;
}

function replaced(pairs: readonly FormPair[], clientId: string): string {
  const [own] = parseForm(newForm({ client_id: clientId }).toString());
  return serializeForm(
    pairs.map((pair) => (pair.name.toLowerCase() === "client_id" && own !== undefined ? own : pair)),
  );
}
