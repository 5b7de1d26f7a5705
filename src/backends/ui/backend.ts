/**
 * The web UI on a gateway, where an authentication policy can be put in front of it (spec 5.9). It only reads: no
 * shutdown, log control, trace, profile or playground. Without a policy it answers loopback peers alone, because
 * routes, subjects and paths of other people's requests are not for everybody.
 */
import { z } from "zod";
import { type Backend, type BackendEnv, defineBackend } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import { emptyReply, type Reply, textReply } from "../../core/reply.ts";
import { HeaderList } from "../../lib/http/headers.ts";
import { cacheControl, UI_HEADERS, type UiFile } from "./files.ts";
import type { UiSource } from "./source.ts";

const TIMEOUT_MS = 10_000;
const BASE = "/ui";
const API = "/ui/api/";

/** What the composition root passes beyond the general environment; without it there is nothing to show. */
interface UiBackendEnv extends BackendEnv {
  readonly uiSource?: UiSource;
}

export const ui = defineBackend({
  key: "ui",
  doc: "The web UI, read-only.",
  schema: z.strictObject({
    loopbackOnly: z
      .boolean()
      .default(true)
      .describe("Whether only peers on a loopback address are answered. Default: true."),
  }),
  defaultPaths: [{ pathPrefix: BASE }],

  compile(config, env: UiBackendEnv): Backend {
    const { uiSource } = env;
    return {
      facts: { name: env.name, type: "internal", protocol: "http" },
      defaultTimeoutMs: TIMEOUT_MS,
      prepare: (exchange) => {
        if (config.loopbackOnly) refuseOthers(exchange);
        return uiSource === undefined ? textReply(503, "the web UI is not available\n") : quietly(exchange, uiSource);
      },
      // `prepare` answers every request; a call would be a defect.
      call(_exchange, call) {
        call.fail(new Error("the UI backend was called"));
        return { abort: () => undefined, resume: () => undefined };
      },
      describe: () => ({ loopbackOnly: config.loopbackOnly }),
    };
  },
});

/** The Host too: a page of another site can point its own name at 127.0.0.1 and would then be a loopback peer. */
function refuseOthers({ source, request }: Exchange): void {
  const isLocal = isLoopback(source.address);
  if (isLocal && isLoopbackName(request.host)) return;
  throw new GatewayError("authorization_denied", {
    message:
      "the web UI accepts only loopback clients that use a loopback name: add an authentication policy to `ui.policies`",
    detail: `\`ui.policies\` is not set, and ${isLocal ? `the host is ${request.host}` : `the peer is ${source.address}`}`,
  });
}

/** What was answered leaves no record; what was refused does. */
async function quietly(exchange: Exchange, source: UiSource): Promise<Reply> {
  const reply = await answer(exchange, source);
  // 503 is how `healthz/ready` says "not yet".
  exchange.isQuiet = reply.status < 400 || reply.status === 503;
  return reply;
}

async function answer({ request }: Exchange, source: UiSource): Promise<Reply> {
  if (request.method !== "GET" && request.method !== "HEAD")
    return textReply(405, "this UI is read-only\n", { allow: "GET, HEAD" });
  if (isFromElsewhere(request)) return textReply(403, "requests from other sites are not allowed\n");
  if (request.path === "/") return emptyReply(302, { location: `${BASE}/` });
  if (!request.path.startsWith(API)) return fileReply(request, source.files.find(request.path.slice(BASE.length)));
  const found = await source.read(request.path.slice(API.length), new URLSearchParams(request.query));
  if (!found) return textReply(404, "not available in this UI; use the admin address\n");
  const headers = HeaderList.of({ ...UI_HEADERS, "content-type": found.type, "cache-control": "no-store" });
  return { status: found.status, headers, body: found.body };
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

/** Another site may link to the page, but not read or embed the data behind it. */
function isFromElsewhere({ headers, path }: GatewayRequest): boolean {
  const site = headers.get("sec-fetch-site");
  if (site !== "cross-site" && site !== "same-site") return false;
  return path.startsWith(API) || headers.get("sec-fetch-mode") !== "navigate";
}

function isLoopback(address: string): boolean {
  return address === "::1" || address.startsWith("127.") || address.startsWith("::ffff:127.");
}

function isLoopbackName(authority: string): boolean {
  return /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?$/i.test(authority);
}
