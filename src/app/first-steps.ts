/**
 * Builds the text that the gateway prints after the start, with URLs and example commands for each kind of route.
 */
import { ADMIN_PATHS } from "../admin/server/paths.ts";
import type { Listener, Route, Topology } from "../core/topology.ts";
import type { App } from "./app-options.ts";

const SHOWN_PER_KIND = 2;

const INITIALIZE =
  '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}';

interface Step {
  readonly title: string;
  readonly url: string;
  readonly command: readonly string[];
}

type Running = Pick<App, "ports" | "adminUrl"> & { topology(): Topology };

export function firstSteps(app: Running, isDemo: boolean, command = "gateway"): string {
  const served = app
    .topology()
    .listeners.flatMap((listener) =>
      listener.routes.map((route) => stepOf(route, originOf(listener, app.ports().get(listener.name)))),
    )
    .filter((step) => step !== undefined);
  const steps = ["MCP", "LLM", "HTTP"].flatMap((title) =>
    served.filter((step) => step.title === title).slice(0, SHOWN_PER_KIND),
  );
  const ui = app.adminUrl === undefined ? undefined : `${app.adminUrl}${ADMIN_PATHS.ui}`;
  const lines = steps.map(({ title, url, command }) => block(title, url, command));
  if (ui !== undefined)
    lines.push(block("UI", ui, ["open it in a browser to see traffic and traces, call tools, and chat"]));
  const end = isDemo
    ? `Press Ctrl-C to stop. To use your own configuration, run: ${command} -f config.yaml`
    : "Press Ctrl-C to stop.";
  return `\n${lines.join("\n")}\n  ${end}\n\n`;
}

function block(title: string, url: string, command: readonly string[]): string {
  return `  ${title.padEnd(5)}${url}\n${command.map((line, i) => `${" ".repeat(i === 0 ? 7 : 9)}${line}\n`).join("")}`;
}

/** A wildcard address becomes localhost. */
function originOf({ address, tls }: Listener, port: number | undefined): string {
  const isAny = address === undefined || address === "0.0.0.0" || address === "::";
  const host = isAny ? "localhost" : address;
  return `${tls ? "https" : "http"}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

function stepOf(route: Route, origin: string): Step | undefined {
  const path = pathOf(route);
  const [first] = route.backends;
  if (path === undefined || route.hostnames.length > 0) return undefined;
  const credential = route.readsCredential ? [`-H "authorization: Bearer $TOKEN"`] : [];
  switch (first?.backend.attributes.type) {
    case "mcp":
      return {
        title: "MCP",
        url: origin + path,
        command: curl(
          ["-sN", origin + path, ...credential],
          ["-H 'accept: application/json, text/event-stream'"],
          INITIALIZE,
        ),
      };
    case "ai": {
      const base = `${origin}${path.replace(/\/$/, "")}${/\/v1\/?$/.test(path) ? "" : "/v1"}`;
      const url = /\/(?:chat\/completions|messages|responses)$/.test(path) ? origin + path : `${base}/chat/completions`;
      const body = JSON.stringify({ model: modelOf(route), messages: [{ role: "user", content: "Hello!" }] });
      return { title: "LLM", url: base, command: curl(["-s", url, ...credential], [], body) };
    }
    case "internal":
      return undefined;
    default:
      return { title: "HTTP", url: origin + path, command: [["curl -i", origin + path, ...credential].join(" ")] };
  }
}

function curl(start: readonly string[], headers: readonly string[], body: string): string[] {
  return [
    `${["curl", ...start, "-H 'content-type: application/json'", ...headers].join(" ")} \\`,
    `-d '${body.replaceAll("'", "'\\''")}'`,
  ];
}

function pathOf({ matches }: Route): string | undefined {
  const plain = matches.find(
    ({ path, method, headers, query }) =>
      !("regex" in path) &&
      !isWellKnown(path) &&
      headers === undefined &&
      query === undefined &&
      (method === undefined || method === "POST"),
  );
  if (plain === undefined) return undefined;
  return "exact" in plain.path ? plain.path.exact : "pathPrefix" in plain.path ? plain.path.pathPrefix : undefined;
}

/** Policies serve login metadata under these paths. */
function isWellKnown(path: { exact?: string; pathPrefix?: string }): boolean {
  return (path.exact ?? path.pathPrefix ?? "").startsWith("/.well-known");
}

function modelOf(route: Route): string {
  const { models } = (route.backends[0]?.backend.describe() ?? {}) as { models?: readonly string[] };
  return models?.find((name) => !name.includes("*")) ?? "demo";
}
