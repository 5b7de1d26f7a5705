/**
 * Serves the web UI on a gateway listener. By default, only loopback clients are served.
 */

import { z } from "zod";
import { readForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { type Backend, type BackendEnv, defineBackend } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import { personName } from "../../core/principal.ts";
import { publicOrigin } from "../../core/public-origin.ts";
import { readBody } from "../../core/read-body.ts";
import { emptyReply, type Reply, textReply } from "../../core/reply.ts";
import { celSource } from "../../core/schema.ts";
import { clientAddress, isLoopbackClient } from "../../core/source.ts";
import { HeaderList } from "../../http/headers.ts";
import { hostOf, isLoopbackHost } from "../../http/host.ts";
import { foreignOrigin } from "../../identity/login/browser-flow.ts";
import { cacheControl, UI_HEADERS, type UiFile } from "./files.ts";
import type { UiSource, UiUser } from "./source.ts";

const QUERY = peerInput("client/query");

const TIMEOUT_MS = 10_000;
const BODY = peerInput("admin-client/body");
const BASE = "/ui";
const API = "/ui/api/";

/** Without `uiSource`, which the composition root provides, there is no UI. */
interface UiBackendEnv extends BackendEnv {
  readonly uiSource?: UiSource;
}

export const ui = defineBackend({
  key: "ui",
  doc: "The web UI. It is read-only except for operators.",
  schema: z.strictObject({
    loopbackOnly: z
      .boolean()
      .default(true)
      .describe(
        "Whether to accept only clients on a loopback address. Requests with a forwarding or PROXY protocol header are rejected. Default: true.",
      ),
    operator: celSource()
      .optional()
      .describe("A CEL expression that is true for operators, who may make changes. Default: no operators."),
  }),
  defaultPaths: [{ pathPrefix: BASE }],
  protection: () => "none",

  compile(config, env: UiBackendEnv): Backend {
    const { uiSource } = env;
    const operator = config.operator === undefined ? undefined : env.cel(config.operator);
    const userOf = (exchange: Exchange): UiUser => {
      const result = operator?.evaluate(exchange.celAttributes);
      return {
        role: result?.ok === true && result.value === true ? "operator" : "viewer",
        name: personName(exchange.attributes, exchange.identity.principal),
        logoutPath: exchange.identity.browserSession?.logoutPath,
      };
    };
    return {
      attributes: { name: env.name, type: "internal", protocol: "http" },
      defaultTimeoutMs: TIMEOUT_MS,
      parsesBody: true,
      prepare: (exchange) => {
        if (config.loopbackOnly) requireLoopback(exchange);
        return uiSource === undefined
          ? textReply(503, "the web UI is not available\n")
          : respondQuietly(exchange, uiSource, {
              userOf,
              hasOperators: operator !== undefined,
            });
      },
      describe: () => ({ loopbackOnly: config.loopbackOnly, operator: config.operator ?? null }),
    };
  },
});

/** The Host header is checked too, because a website can resolve its own name to 127.0.0.1. */
function requireLoopback({ source, request }: Exchange): void {
  const isLocal = isLoopbackClient(source);
  if (isLocal && isLoopbackHost(hostOf(request.host))) return;
  const found = isLocal
    ? `the host is ${request.host}`
    : source.isForwarded
      ? `a proxy forwarded the request of ${clientAddress(source)}`
      : `the peer is ${source.address}`;
  throw new GatewayError("authorization_denied", {
    message:
      "the web UI accepts only loopback clients that use a loopback name: add an authentication policy to `ui.policies`",
    detail: `\`ui.policies\` is not set, and ${found}`,
  });
}

interface Access {
  userOf(exchange: Exchange): UiUser;
  readonly hasOperators: boolean;
}

/** Successful reads are not recorded. Changes and rejections are recorded. */
async function respondQuietly(exchange: Exchange, source: UiSource, access: Access): Promise<Reply> {
  const isRead = exchange.request.method !== "POST";
  // The flag is set early, because the client may disconnect while the request is handled.
  exchange.records.isQuiet = isRead;
  try {
    const reply = await respond(exchange, source, access);
    // `healthz/ready` responds with 503 while the gateway is not ready.
    exchange.records.isQuiet = isRead && (reply.status < 400 || reply.status === 503);
    return reply;
  } catch (error) {
    exchange.records.isQuiet = false;
    throw error;
  }
}

async function respond(exchange: Exchange, source: UiSource, { userOf, hasOperators }: Access): Promise<Reply> {
  const { request } = exchange;
  const isApi = request.path.startsWith(API);
  const isPost = request.method === "POST" && isApi && hasOperators;
  if (!isPost && request.method !== "GET" && request.method !== "HEAD")
    return textReply(405, "this UI is read-only\n", { allow: "GET, HEAD" });
  if (isCrossSite(request)) return textReply(403, "requests from other sites are not allowed\n");
  // Browsers usually send Origin with a read only if the page has another origin.
  if (isPost || (isApi && request.headers.has("origin"))) requireOwnPage(exchange);
  if (request.path === "/") return emptyReply(302, { location: `${BASE}/` });
  if (!isApi) return fileReply(request, source.files.find(request.path.slice(BASE.length)));
  const user = userOf(exchange);
  const call = {
    method: isPost ? ("POST" as const) : ("GET" as const),
    name: request.path.slice(API.length),
    query: readForm(QUERY, request.query),
    body: () => bodyOf(exchange),
  };
  const found = await source.call(call, user);
  if (!found || (found === "denied" && !hasOperators))
    return textReply(404, "not available in this UI; use the admin address\n");
  if (found === "denied")
    throw new GatewayError("authorization_denied", {
      message: "this needs the role operator",
      detail: `\`ui.operator\` is not true for ${user.name ?? "this user"}`,
    });
  const headers = HeaderList.of({ ...UI_HEADERS, "content-type": found.type, "cache-control": "no-store" });
  return { status: found.status, headers, body: found.body, ...(isPost ? { confidential: true as const } : {}) };
}

/**
 * Browsers send cookies, basic authentication, and certificates automatically, so only pages of the same origin may use
 * the API.
 */
function requireOwnPage(exchange: Exchange): void {
  const origin = exchange.identity.browserSession?.origin ?? publicOrigin(exchange);
  const detail = foreignOrigin(exchange.request, origin);
  if (detail === undefined) return;
  throw new GatewayError("origin_denied", {
    message: `only pages of ${origin} can use this UI: open it there, or list the proxy in front of the gateway in \`config.trustedProxies\`\n`,
    detail,
  });
}

async function bodyOf(exchange: Exchange): Promise<Buffer> {
  const { body } = exchange.request;
  if (body.kind === "stream") return readBody(exchange, body, BODY);
  return body.kind === "bytes" ? body.bytes : Buffer.alloc(0);
}

function fileReply(request: GatewayRequest, file: UiFile | undefined): Reply {
  if (!file) return textReply(404, "not found\n");
  const zipped = file.gzip !== undefined && /\bgzip\b/.test(request.headers.get("accept-encoding") ?? "");
  const headers = HeaderList.of({
    ...UI_HEADERS,
    "content-type": file.type,
    "cache-control": cacheControl(file),
    vary: "accept-encoding",
    ...(zipped ? { "content-encoding": "gzip" } : {}),
  });
  return { status: 200, headers, body: zipped ? file.gzip : file.bytes };
}

/** Other sites may link to the UI, but not read or embed its data. */
function isCrossSite({ headers, path }: GatewayRequest): boolean {
  const site = headers.get("sec-fetch-site");
  if (site !== "cross-site" && site !== "same-site") return false;
  return path.startsWith(API) || headers.get("sec-fetch-mode") !== "navigate";
}
