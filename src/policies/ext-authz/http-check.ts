/**
 * Checks a request with an authorization service over plain HTTP, like `auth_request` in nginx and `forwardAuth` in
 * Traefik. 2xx allows the request, 5xx is a failure of the service, and any other status denies the request.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import type { Expression } from "../../cel/expression.ts";
import { attributesWithResponse } from "../../core/cel-attributes.ts";
import type { Exchange } from "../../core/exchange.ts";
import { addedForwardedFor } from "../../core/source.ts";
import type { Fetch, FetchResponse } from "../../http/fetch.ts";
import { addForwarded, type HeaderList, isHeaderValue } from "../../http/headers.ts";
import { pathAndQuery } from "../../http/request-path.ts";
import { evaluatedText } from "../../policy-parts/header-changes.ts";
import { checkHeaderCount, type HeaderChange, headerChange } from "../../policy-parts/service-headers.ts";
import { denialStatus, type Verdict } from "./verdict.ts";

const RESPONSE = peerInput("ext-authz/http-response");
const FORWARDED_DENIAL_HEADERS = new Set([
  "www-authenticate",
  "location",
  "set-cookie",
  "content-type",
  "retry-after",
  "cache-control",
]);

export interface HttpCheck {
  readonly url: string;
  /** The unix socket of the service, instead of the host in `url`. */
  readonly socketPath: string | undefined;
  readonly timeoutMs: number;
  readonly method: string;
  /** The service may set only these headers on the backend request. */
  readonly accepted: ReadonlySet<string>;
  /** Computes the path and query of the check, which replace those of `url`. */
  readonly path: Expression | undefined;
  readonly body: Expression | undefined;
  /** These expressions read the response of the service. */
  readonly metadata: readonly (readonly [name: string, value: Expression])[];
}

/** Rejects if the service fails or does not respond within the timeout. */
export async function checkOverHttp(
  fetch: Fetch,
  { url, socketPath, method, timeoutMs, accepted, path, body: sentBody, metadata }: HttpCheck,
  exchange: Exchange,
  headers: HeaderList,
  context: readonly (readonly [name: string, value: string | undefined])[],
): Promise<Verdict> {
  const { request, source, id, originalHost } = exchange;
  // If a value cannot be computed, the client's header with that name is removed so that the service does not trust it.
  for (const [name, value] of context)
    headers.assert(name, value !== undefined && isHeaderValue(value) ? value : undefined);
  // A `headers` list can omit the forwarding headers, so they are always copied from the request.
  for (const name of ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"])
    headers.assert(name, request.headers.get(name));
  addForwarded(headers, addedForwardedFor(source), request.scheme, originalHost);
  headers.set("x-forwarded-method", request.method);
  headers.set("x-forwarded-uri", pathAndQuery(request));
  headers.set("x-request-id", id);
  const response = await fetch({
    url: path === undefined ? url : new URL(url).origin + evaluatedPath(path, exchange),
    socketPath,
    method,
    headers: Object.fromEntries(headers.entries()),
    ...(sentBody === undefined ? {} : { body: evaluatedBody(sentBody, exchange) }),
    timeoutMs,
    input: RESPONSE,
  });
  const { status, body } = response;
  if (status >= 500) throw new Error(`status ${status}`);
  const selectHeaders = (names: ReadonlySet<string>): HeaderChange[] => {
    const changes: HeaderChange[] = [];
    const { pairs } = response.headers;
    for (let i = 0; i < pairs.length; i += 2) {
      const change =
        names.has(pairs[i] as string) && headerChange(pairs[i] as string, pairs[i + 1] as string, "replace");
      if (change) changes.push(change);
    }
    checkHeaderCount(changes);
    return changes;
  };
  if (status >= 200 && status < 300)
    return {
      allowed: true,
      set: selectHeaders(accepted),
      remove: [],
      respond: [],
      ...(metadata.length === 0 ? {} : { metadata: readMetadata(metadata, exchange, response) }),
    };
  const reason = `status ${status}`;
  return {
    allowed: false,
    status: denialStatus(status),
    headers: selectHeaders(FORWARDED_DENIAL_HEADERS),
    body: body.toString("utf8"),
    reason,
  };
}

/** Throws if there is no path, so that the check counts as failed. */
function evaluatedPath(path: Expression, exchange: Exchange): string {
  const text = evaluatedText(path, exchange);
  if (text === undefined || !/^\/[\x21-\x7e]*$/.test(text))
    throw new Error("`path` has no valid value for this request");
  return text;
}

function evaluatedBody(body: Expression, exchange: Exchange): Buffer {
  const text = evaluatedText(body, exchange);
  if (text === undefined) throw new Error("`body` has no value for this request");
  return Buffer.from(text);
}

/** Values whose expression fails are omitted. */
function readMetadata(
  metadata: HttpCheck["metadata"],
  exchange: Exchange,
  { status, headers, body }: FetchResponse,
): Record<string, unknown> {
  const attributes = attributesWithResponse(exchange, { status, headers, body });
  return Object.fromEntries(
    metadata.flatMap(([name, expression]) => {
      const result = expression.evaluate(attributes);
      return result.ok ? [[name, result.value] as const] : [];
    }),
  );
}
