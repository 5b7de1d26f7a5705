/**
 * `/ui/api/token` exchanges the authorization code of the playground's login, because identity providers rarely allow
 * the page to call their token endpoint. The endpoint comes from the listener's own authorization server metadata,
 * never from the page, so it cannot be used to reach other addresses.
 */
import { z } from "zod";
import { newForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { type Fetch, type FetchResponse, parseHttpUrl } from "../../http/fetch.ts";
import { tryReadJson } from "../../json/read-json.ts";
import { type AdminEndpoint, type AdminResponse, jsonResponse, textResponse } from "../server/endpoint.ts";
import type { ListenerAddress } from "./call.ts";

const BODY = peerInput("admin-client/body");
const PROVIDER_RESPONSE = peerInput("identity-provider/token-response");

export interface TokenOptions {
  readonly fetch: Fetch;
  listener(name: string): ListenerAddress | undefined;
}

const TIMEOUT_MS = 10_000;
const METADATA = "/.well-known/oauth-authorization-server";

const tokenSchema = z.strictObject({
  listener: z.string(),
  resourcePath: z.string().regex(/^\/[A-Za-z0-9._~/-]*$/, "expected a path"),
  form: z.record(z.string(), z.string()),
});

export function tokenEndpoint(options: TokenOptions): AdminEndpoint {
  return {
    path: "/ui/api/token",
    doc: "POST: exchanges an authorization code of a playground login for a token.",
    async POST(request) {
      const parsed = tokenSchema.safeParse(tryReadJson(BODY, await request.body()));
      if (!parsed.success) return textResponse(400, `${z.prettifyError(parsed.error)}\n`);
      const { listener, resourcePath, form } = parsed.data;
      const address = options.listener(listener);
      if (!address) return textResponse(404, `there is no listener named ${JSON.stringify(listener)}\n`);
      const endpoint = await findTokenEndpoint(address, resourcePath, options.fetch);
      if (endpoint === undefined) return textResponse(502, "the route's metadata has no token endpoint\n");
      return exchange(endpoint, form, options.fetch);
    },
  };
}

async function findTokenEndpoint(address: ListenerAddress, path: string, fetch: Fetch): Promise<string | undefined> {
  const origin = `${address.protocol}://${address.host.includes(":") ? `[${address.host}]` : address.host}:${address.port}`;
  for (const url of [`${origin}${METADATA}${path === "/" ? "" : path}`, `${origin}${METADATA}`]) {
    const response = await fetch({
      url,
      timeoutMs: TIMEOUT_MS,
      input: PROVIDER_RESPONSE,
      ...(address.protocol === "https" ? { tls: { insecure: true } } : {}),
    }).catch(() => undefined);
    const metadata = response?.status === 200 ? tryReadJson(PROVIDER_RESPONSE, response.body) : undefined;
    const endpoint = (metadata as { token_endpoint?: unknown } | undefined)?.token_endpoint;
    if (typeof endpoint === "string" && parseHttpUrl(endpoint)) return endpoint;
  }
  return undefined;
}

async function exchange(url: string, form: Record<string, string>, fetch: Fetch): Promise<AdminResponse> {
  let response: FetchResponse;
  try {
    response = await fetch({
      url,
      method: "POST",
      headers: { "content-type": "application/x-www-form-urlencoded" },
      body: Buffer.from(newForm(form).toString()),
      timeoutMs: TIMEOUT_MS,
      input: PROVIDER_RESPONSE,
    });
  } catch (error) {
    return jsonResponse({ status: 502, endpoint: url, body: { error: (error as Error).message } });
  }
  const text = response.body.toString("utf8");
  return jsonResponse({
    status: response.status,
    endpoint: url,
    body: tryReadJson(PROVIDER_RESPONSE, text) ?? { error: text.slice(0, 1000) },
  });
}
