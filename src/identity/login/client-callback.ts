/**
 * Receives the provider's callback on behalf of clients that log in as the operator's client (RFC 6749 section
 * 4.1.2). The gateway redirects only to addresses in the configuration or in the client's metadata document, and only
 * with a state that the same policy signed.
 */
import { addToQuery, type FormPair, newForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import type { SigningKey } from "../../store/signing-key.ts";
import { parseForm, requireUnique, serializeForm } from "../providers/oauth-form.ts";
import { OAuthRequestError } from "../providers/provider.ts";
import { isLoopbackAddress, isSameAddress } from "./client-metadata.ts";
import { gatewayEndpoints, resourceSuffix } from "./well-known.ts";

const SEALED_STATE = peerInput("client/login-state");

const LOGIN_SECONDS = 3_600;
const MAX_STATE_CHARS = 2_048;
const MAX_ADDRESS_CHARS = 2_048;
const STATE = /^([\w-]{1,12000})\.([\w-]{22})$/;
const FORWARDED_PARAMETERS = ["code", "error", "error_description", "error_uri"];
const REJECTED_PARAMETERS = ["request", "request_uri"];

const NOT_ALLOWED = "redirect_uri is not among the addresses that the gateway may lead back to";

export const LOOPBACK = "loopback";

export interface ClientCallbackOptions {
  readonly clientId: string;
  readonly redirectUris: readonly string[];
  readonly issuer: string;
  readonly resource: string;
  readonly key: SigningKey;
  /** Set if clients with a metadata document are accepted. Returns whether the document's host is still accepted. */
  readonly acceptsDocument: ((client: string) => boolean) | undefined;
  nowMs(): number;
}

export interface ClientCallback {
  readonly metadata: Readonly<Record<string, unknown>>;
  /**
   * Returns the query for the provider. `client` is the URL of the client's document, if the document lists the
   * address. The client ID is already replaced.
   */
  authorize(query: string, suffix: string, client?: string): string;
  token(form: string): string;
  /**
   * Returns the redirect from the callback to the client. With `sendsIss`, the provider's metadata promises `iss`, so a
   * callback without it is rejected.
   */
  redirectToClient(query: string, sendsIss: boolean): string;
}

/** The operator registers this redirect URI at the provider. */
export function callbackAddress(resource: string): string {
  return gatewayEndpoints(new URL(resource).origin, resourceSuffix(resource)).callback;
}

export function createClientCallback(options: ClientCallbackOptions): ClientCallback {
  const { key, resource, issuer } = options;
  const own = callbackAddress(resource);
  const { origin } = new URL(resource);

  function isAllowed(address: string): boolean {
    return options.redirectUris.some((one) =>
      one === LOOPBACK ? isLoopbackAddress(address) : isSameAddress(one, address),
    );
  }

  /** Earlier versions do not seal the client. They checked the address when the login began. */
  function isOfDocument(client: string | null | undefined): boolean {
    const { acceptsDocument } = options;
    return acceptsDocument !== undefined && (client === undefined || (client !== null && acceptsDocument(client)));
  }

  function seal(address: string, state: string | undefined, suffix: string, client: string | undefined): string {
    const until = Math.floor(options.nowMs() / 1000) + LOGIN_SECONDS;
    const sealed: Sealed = [address, state ?? null, suffix, until, client ?? null];
    const payload = Buffer.from(JSON.stringify(sealed)).toString("base64url");
    return `${payload}.${key.sign("login callback", issuer, resource, payload)}`;
  }

  function open(state: string): { address: string; state: string | null; suffix: string } {
    const [, payload = "", signature = ""] = STATE.exec(state) ?? [];
    if (signature === "" || !key.isSignature(signature, "login callback", issuer, resource, payload))
      throw invalidRequest("the state is not known");
    const [address, own, suffix, until, client] = readJson(SEALED_STATE, Buffer.from(payload, "base64url")) as Sealed;
    if (options.nowMs() / 1000 > until) throw invalidRequest("the login took too long; start it again");
    // The configuration may have changed since the login began, here or at the replica that sealed the state.
    if (!isAllowed(address) && !isOfDocument(client)) throw invalidRequest(NOT_ALLOWED);
    return { address, state: own, suffix };
  }

  return {
    metadata: {
      authorization_response_iss_parameter_supported: true,
      response_modes_supported: ["query"],
      pushed_authorization_request_endpoint: undefined,
      require_pushed_authorization_requests: undefined,
      request_parameter_supported: false,
      request_uri_parameter_supported: false,
    },

    authorize(query, suffix, client) {
      const pairs = uniquePairs(query);
      const value = (name: string): string | undefined => findParameter(pairs, name);
      const address = value("redirect_uri") ?? "";
      const state = value("state");
      if (value("client_id") !== options.clientId)
        throw new OAuthRequestError("invalid_client", "register first: client_id is not known");
      if (client === undefined && !isAllowed(address)) throw invalidRequest(NOT_ALLOWED);
      if (address.length > MAX_ADDRESS_CHARS || (state?.length ?? 0) > MAX_STATE_CHARS)
        throw invalidRequest("redirect_uri or state is too long");
      if (value("code_challenge") === undefined || value("code_challenge_method") !== "S256")
        throw invalidRequest("code_challenge with the method S256 is required");
      if (pairs.some(({ name }) => REJECTED_PARAMETERS.includes(name.toLowerCase())))
        throw invalidRequest("request objects are not supported");
      if ((value("response_mode") ?? "query") !== "query") throw invalidRequest("response_mode must be query");
      const others = pairs.filter(({ name }) => !["redirect_uri", "state"].includes(name.toLowerCase()));
      const ours = newForm({ redirect_uri: own, state: seal(address, state, suffix, client) });
      return serializeForm([...others, ...parseForm(ours.toString())]);
    },

    token(form) {
      const [ours] = parseForm(newForm({ redirect_uri: own }).toString());
      return serializeForm(
        parseForm(form).map((pair) => (pair.name.toLowerCase() === "redirect_uri" && ours ? ours : pair)),
      );
    },

    redirectToClient(query, sendsIss) {
      const pairs = uniquePairs(query);
      const { address, state, suffix } = open(findParameter(pairs, "state") ?? "");
      const iss = findParameter(pairs, "iss");
      if (iss === undefined ? sendsIss : iss !== issuer)
        throw invalidRequest("the answer is not from the identity provider");
      const target = new URL(address);
      for (const { name, value: text } of pairs)
        if (FORWARDED_PARAMETERS.includes(name)) addToQuery(target, "append", [[name, text]]);
      if (state !== null) addToQuery(target, "append", [["state", state]]);
      addToQuery(target, "append", [["iss", gatewayEndpoints(origin, suffix).issuer]]);
      return target.href;
    },
  };
}

type Sealed = readonly [
  address: string,
  state: string | null,
  suffix: string,
  until: number,
  client?: string | null | undefined,
];

function findParameter(pairs: readonly FormPair[], name: string): string | undefined {
  return pairs.find((pair) => pair.name.toLowerCase() === name)?.value;
}

function invalidRequest(message: string): OAuthRequestError {
  return new OAuthRequestError("invalid_request", message);
}

function uniquePairs(text: string): readonly FormPair[] {
  const pairs = parseForm(text);
  requireUnique(pairs.filter(({ name }) => name !== "resource"));
  return pairs;
}
