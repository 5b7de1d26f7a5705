/**
 * `/ui` (spec 4.2) serves the files of the web UI, and its API below `/ui/api/`.
 */
import { hostname } from "node:os";
import { builtFolderNear, cacheControl, openUiFiles, UI_HEADERS, type UiFiles } from "../../backends/ui/files.ts";
import type { UiResponse, UiSource, UiUser } from "../../backends/ui/source.ts";
import type { Clock } from "../../base/clock.ts";
import { embeddedFolder } from "../../base/embedded-files.ts";
import type { SourceText } from "../../config/load/load.ts";
import type { Environment } from "../../config/text/env.ts";
import type { Listener } from "../../core/topology.ts";
import type { Fetch } from "../../http/fetch.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import {
  type AdminEndpoint,
  type AdminRequest,
  type AdminResponse,
  jsonResponse,
  textResponse,
} from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";
import { addEndpoint } from "./add-entry.ts";
import { callEndpoint, type ListenerAddress } from "./call.ts";
import { uiConfigEndpoints } from "./config-text.ts";
import { DOCS_PAGE, docsEndpoint, openDocsFiles } from "./docs.ts";
import { matchingEndpoint } from "./matching.ts";
import { createPreview } from "./preview.ts";
import { tokenEndpoint } from "./token.ts";
import { viewerResponse } from "./viewer.ts";

export interface UiOptions {
  readonly version: string;
  readonly files: UiFiles;
  readonly endpoints: () => readonly AdminEndpoint[];
  readonly own: readonly AdminEndpoint[];
  readonly mayEdit: boolean;
  readonly hasDocs: boolean;
}

const API = `${ADMIN_PATHS.ui}/api`;
/** The UI API does not serve these paths, some of which stop or replace the process. */
const EXCLUDED_PATHS: readonly string[] = [
  ADMIN_PATHS.quit,
  ADMIN_PATHS.upgrade,
  ADMIN_PATHS.index,
  ADMIN_PATHS.ui,
  ADMIN_PATHS.docs,
];
/** Every user of the UI on a gateway may read these paths. */
const READABLE_PATHS: readonly string[] = [
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
const OPERATOR_PATHS: readonly string[] = [
  ADMIN_PATHS.usage,
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
    GET: (request) => (isApi(request) ? callApi(request, "GET", options) : fileResponse(request, options.files)),
    POST: (request) =>
      isApi(request)
        ? callApi(request, "POST", options)
        : { ...textResponse(405, "method not allowed; use GET\n"), headers: { allow: "GET" } },
  };
}

export function uiSource(options: Pick<UiOptions, "version" | "files" | "endpoints">): UiSource {
  return {
    files: options.files,
    async call({ method, name, query, body }, user) {
      if (name === "about")
        return method === "GET"
          ? completeResponse(aboutResponse({ ...options, mayEdit: false, hasDocs: false }, user))
          : undefined;
      const path = `/${name}`;
      // A stream would keep a connection of the gateway open as long as the tab is open.
      if (query.has("follow")) return undefined;
      const isOperated = OPERATOR_PATHS.includes(path);
      if (!isOperated && (method !== "GET" || !READABLE_PATHS.includes(path))) return undefined;
      if (isOperated && user.role !== "operator") return "denied";
      const endpoint = options.endpoints().find((one) => one.path === path);
      const response = await endpoint?.[method]?.({ method, path, query, body });
      const whole = response && completeResponse(response);
      return whole && user.role === "viewer" ? viewerResponse(path, whole) : whole;
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
): AdminResponse | Promise<AdminResponse> {
  const path = request.path.slice(API.length);
  if (path === "/about" && method === "GET") return aboutResponse(options, undefined);
  const endpoint =
    options.own.find((one) => one.path === request.path) ??
    options.endpoints().find((one) => one.path === path && !EXCLUDED_PATHS.includes(path));
  if (!endpoint) return textResponse(404, "not found\n");
  const handler = endpoint[method];
  if (handler) return handler({ ...request, path: endpoint.path, body: () => request.body() });
  const allow = [endpoint.GET && "GET", endpoint.POST && "POST"].filter(Boolean).join(", ");
  return { ...textResponse(405, `method not allowed; use ${allow}\n`), headers: { allow } };
}

function fileResponse({ path }: AdminRequest, files: UiFiles): AdminResponse {
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
    ? textResponse(503, "the web UI is not built; run: npm run build\n")
    : textResponse(404, "not found\n");
}

/** `user` is undefined on the admin address, which has no restrictions. */
function aboutResponse(
  options: Pick<UiOptions, "version" | "mayEdit" | "hasDocs">,
  user: UiUser | undefined,
): AdminResponse {
  return jsonResponse({
    version: options.version,
    host: hostname(),
    node: process.version,
    platform: process.platform,
    readOnly: user !== undefined,
    mayOperate: user === undefined || user.role === "operator",
    mayEdit: options.mayEdit,
    hasDocs: options.hasDocs,
    ...(user === undefined ? {} : { role: user.role, user: user.name, logoutPath: user.logoutPath }),
  });
}

function completeResponse(response: AdminResponse): UiResponse | undefined {
  if ("stream" in response) return undefined;
  return { status: response.status, type: response.type, body: Buffer.from(response.body) };
}

export interface UiParts {
  readonly version: string;
  readonly moduleUrl: string;
  endpoints(): readonly AdminEndpoint[];
}

export interface UiEndpointParts {
  readonly clock: Clock;
  readonly environment: Environment;
  readonly fetch: Fetch;
  readonly redaction: Redaction;
  readonly mayEdit: boolean;
  read(): readonly SourceText[];
  listeners(): readonly Listener[];
  ports(): ReadonlyMap<string, number>;
}

export interface Ui {
  readonly source: UiSource;
  readonly docs: AdminEndpoint;
  endpoint(parts: UiEndpointParts): AdminEndpoint;
}

export function createUi({ version, moduleUrl, endpoints }: UiParts): Ui {
  const files = openUiFiles(embeddedFolder("ui") ?? builtFolderNear(moduleUrl));
  const docs = openDocsFiles(embeddedFolder("docs") ?? builtFolderNear(moduleUrl, "docs", DOCS_PAGE));
  return {
    source: uiSource({ version, files, endpoints }),
    docs: docsEndpoint(docs),
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
        hasDocs: docs.exist,
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

/** A listener on all interfaces is reachable over loopback. */
function reachable(address: string | undefined): string {
  return address === undefined || address === "0.0.0.0" || address === "::" ? "127.0.0.1" : address;
}
