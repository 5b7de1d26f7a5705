/**
 * Formats a request as a curl command for the same listener. Shell variables replace redacted secrets.
 */
import type { RequestDetail } from "../../data/requests.ts";

const REDACTED = "<redacted>";
/** curl sets these headers itself, or they apply to one connection only. */
const LEFT_OUT = new Set(["host", "content-length", "connection", "accept-encoding", "user-agent"]);

export function curlOf(detail: RequestDetail, port: number | undefined): string {
  const request = (detail.requestState.request ?? {}) as {
    pathAndQuery?: string;
    scheme?: string;
    headers?: Record<string, string | string[]>;
  };
  const url = `${request.scheme ?? "http"}://127.0.0.1:${port ?? 80}${request.pathAndQuery ?? detail.path}`;
  const headers = Object.entries(request.headers ?? {}).flatMap(([name, values]) =>
    LEFT_OUT.has(name) ? [] : [values].flat().map((value) => headerArgument(name, value)),
  );
  const host = isLoopback(detail.host) ? [] : [`-H ${quoted(`host: ${detail.host}`)}`];
  const method = detail.method === "GET" ? [] : [`-X ${detail.method}`];
  const body =
    detail.method === "POST" || detail.method === "PUT" || detail.method === "PATCH" ? ["--data @body.json"] : [];
  return ["curl -i", ...method, ...host, ...headers, ...body, quoted(url)].join(" \\\n  ");
}

function headerArgument(name: string, value: string): string {
  if (value !== REDACTED) return `-H ${quoted(`${name}: ${value}`)}`;
  return `-H "${name}: $${name.toUpperCase().replaceAll("-", "_")}"`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function isLoopback(host: string): boolean {
  return /^(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?$/.test(host);
}
