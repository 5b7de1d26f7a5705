/**
 * `/ui` (spec 4.2): the web UI's files, and below `/ui/api/` everything it reads. The page speaks to one base
 * path, so that the same files work here and, with a part of the API, on a gateway.
 */
import { hostname } from "node:os";
import { cacheControl, openUiFiles, UI_HEADERS, type UiFiles, uiFolderNear } from "../../backends/ui/files.ts";
import type { UiAnswer, UiSource, UiUser } from "../../backends/ui/source.ts";
import type { Clock } from "../../base/clock.ts";
import { embeddedFolder } from "../../base/embedded-files.ts";
import type { SourceText } from "../../config/load/load.ts";
import type { Environment } from "../../config/text/env.ts";
import type { Listener } from "../../core/topology.ts";
import type { Fetch } from "../../http/fetch.ts";
import type { Redaction } from "../../observe/trace/redact.ts";
import { type AdminAnswer, type AdminEndpoint, type AdminRequest, jsonAnswer, textAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";
import { addEndpoint } from "./add-entry.ts";
import { callEndpoint, type ListenerAddress } from "./call.ts";
import { uiConfigEndpoints } from "./config-text.ts";
import { matchingEndpoint } from "./matching.ts";
import { createPreview } from "./preview.ts";
import { tokenEndpoint } from "./token.ts";
import { viewerAnswer } from "./viewer.ts";

export interface UiOptions {
  readonly version: string;
  readonly files: UiFiles;
  /** The admin interface's own endpoints: `/ui/api/metrics` is `/metrics`. */
  readonly endpoints: () => readonly AdminEndpoint[];
  /** Those that exist for the UI alone; their paths begin with `/ui/api/`. */
  readonly own: readonly AdminEndpoint[];
  /** Whether the configuration file may be written from here. */
  readonly mayEdit: boolean;
}

const API = `${ADMIN_PATHS.ui}/api`;
/** A page open in a browser tab must not be able to stop the process. */
const NOT_OFFERED: readonly string[] = [ADMIN_PATHS.quit, ADMIN_PATHS.index, ADMIN_PATHS.ui];
/** What everybody may read on a gateway: no bodies of requests, nothing that costs CPU, nothing that changes. */
const READABLE: readonly string[] = [
  ADMIN_PATHS.configDump,
  ADMIN_PATHS.metrics,
  ADMIN_PATHS.ready,
  ADMIN_PATHS.requests,
  ADMIN_PATHS.history,
  ADMIN_PATHS.limits,
  ADMIN_PATHS.budgets,
  ADMIN_PATHS.memory,
  ADMIN_PATHS.tasks,
];
/** What operators may read and change there besides. */
const OPERATED: readonly string[] = [
  ADMIN_PATHS.keys,
  ADMIN_PATHS.mcpSessions,
  ADMIN_PATHS.mcpConnections,
  ADMIN_PATHS.mcpTools,
  ADMIN_PATHS.mcpLock,
  ADMIN_PATHS.logging,
];

export function uiEndpoint(options: UiOptions): AdminEndpoint {
  return {
    path: ADMIN_PATHS.ui,
    below: true,
    doc: "The web UI.",
    GET: (request) => (isApi(request) ? callApi(request, "GET", options) : fileAnswer(request, options.files)),
    POST: (request) =>
      isApi(request)
        ? callApi(request, "POST", options)
        : { ...textAnswer(405, "method not allowed; use GET\n"), headers: { allow: "GET" } },
  };
}

/** What the copy of the UI on a gateway sees of this process, and what its operators may do. */
export function uiSource(options: Pick<UiOptions, "version" | "files" | "endpoints">): UiSource {
  return {
    files: options.files,
    async call({ method, name, query, body }, user) {
      if (name === "about")
        return method === "GET" ? wholeAnswer(aboutAnswer({ ...options, mayEdit: false }, user)) : undefined;
      const path = `/${name}`;
      // A stream would hold a connection of the gateway open for as long as a tab lives.
      if (query.has("follow")) return undefined;
      const isOperated = OPERATED.includes(path);
      if (!isOperated && (method !== "GET" || !READABLE.includes(path))) return undefined;
      if (isOperated && user.role !== "operator") return "denied";
      const endpoint = options.endpoints().find((one) => one.path === path);
      const answer = await endpoint?.[method]?.({ method, path, query, body });
      const whole = answer && wholeAnswer(answer);
      return whole && user.role === "viewer" ? viewerAnswer(path, whole) : whole;
    },
  };
}

function isApi({ path }: AdminRequest): boolean {
  return path.startsWith(`${API}/`);
}

function callApi(
  request: AdminRequest,
  method: "GET" | "POST",
  options: UiOptions,
): AdminAnswer | Promise<AdminAnswer> {
  const path = request.path.slice(API.length);
  if (path === "/about" && method === "GET") return aboutAnswer(options, undefined);
  const endpoint =
    options.own.find((one) => one.path === request.path) ??
    options.endpoints().find((one) => one.path === path && !NOT_OFFERED.includes(path));
  if (!endpoint) return textAnswer(404, "not found\n");
  const handler = endpoint[method];
  if (handler) return handler({ ...request, path: endpoint.path, body: () => request.body() });
  const allow = [endpoint.GET && "GET", endpoint.POST && "POST"].filter(Boolean).join(", ");
  return { ...textAnswer(405, `method not allowed; use ${allow}\n`), headers: { allow } };
}

function fileAnswer({ path }: AdminRequest, files: UiFiles): AdminAnswer {
  const below = path.slice(ADMIN_PATHS.ui.length);
  const file = files.find(below);
  if (file)
    return {
      status: 200,
      type: file.type,
      body: file.bytes,
      headers: { ...UI_HEADERS, "cache-control": cacheControl(file) },
    };
  return files.find("") === undefined
    ? textAnswer(503, "the web UI is not built; run: npm run build\n")
    : textAnswer(404, "not found\n");
}

/** Without a user it is the admin address, where everything is offered. */
function aboutAnswer(options: Pick<UiOptions, "version" | "mayEdit">, user: UiUser | undefined): AdminAnswer {
  return jsonAnswer({
    version: options.version,
    host: hostname(),
    node: process.version,
    platform: process.platform,
    readOnly: user !== undefined,
    mayOperate: user === undefined || user.role === "operator",
    mayEdit: options.mayEdit,
    ...(user === undefined ? {} : { role: user.role, user: user.name, logoutPath: user.logoutPath }),
  });
}

function wholeAnswer(answer: AdminAnswer): UiAnswer | undefined {
  if ("stream" in answer) return undefined;
  return { status: answer.status, type: answer.type, body: Buffer.from(answer.body) };
}

export interface UiParts {
  readonly version: string;
  /** `import.meta.url` of the composition root: `dist/ui` is looked for near it. */
  readonly moduleUrl: string;
  /** The admin interface's; asked when a page is served. */
  endpoints(): readonly AdminEndpoint[];
}

export interface UiEndpointParts {
  readonly clock: Clock;
  readonly environment: Environment;
  readonly fetch: Fetch;
  readonly redaction: Redaction;
  readonly mayEdit: boolean;
  /** The configuration's sources as they are now. */
  read(): readonly SourceText[];
  listeners(): readonly Listener[];
  /** The ports that listeners really have. */
  ports(): ReadonlyMap<string, number>;
}

export interface Ui {
  /** For the copy on a gateway. */
  readonly source: UiSource;
  /** For the admin interface. */
  endpoint(parts: UiEndpointParts): AdminEndpoint;
}

export function createUi({ version, moduleUrl, endpoints }: UiParts): Ui {
  const files = openUiFiles(embeddedFolder("ui") ?? uiFolderNear(moduleUrl));
  return {
    source: uiSource({ version, files, endpoints }),
    endpoint(parts) {
      const { clock, fetch, redaction, mayEdit, read } = parts;
      const listener = (name: string): ListenerAddress | undefined => {
        const found = parts.listeners().find((one) => one.name === name);
        const port = parts.ports().get(name);
        if (!found || port === undefined) return undefined;
        return { protocol: found.protocol === "HTTPS" ? "https" : "http", host: reachable(found.address), port };
      };
      return uiEndpoint({
        version,
        files,
        endpoints,
        mayEdit,
        own: [
          callEndpoint({ clock, listener }),
          tokenEndpoint({ fetch, listener }),
          matchingEndpoint(endpoints),
          addEndpoint({ read, redaction }),
          ...uiConfigEndpoints({ read, preview: createPreview(parts), redaction, mayEdit }),
        ],
      });
    },
  };
}

/** A listener on all interfaces is reached over loopback. */
function reachable(address: string | undefined): string {
  return address === undefined || address === "0.0.0.0" || address === "::" ? "127.0.0.1" : address;
}
