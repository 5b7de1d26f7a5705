/**
 * All provider APIs on one loopback server. The model name selects the behavior: `cached` adds cached tokens to the
 * usage, `tool` calls the first tool, `endless` never ends its stream, `silent` never responds, `broken` cuts off the
 * response, `fail-<status>` responds with that status, and `redirect` with a redirect.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type Call, COUNTS, dialect, hasToolResult } from "./upstream-answers.ts";

export interface UpstreamRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: Record<string, unknown>;
}

export interface TestUpstream {
  /** `127.0.0.1:<port>`. */
  readonly host: string;
  readonly requests: UpstreamRequest[];
  last(): UpstreamRequest;
  /** Resolves when this model has been asked for. */
  asked(model: string): Promise<void>;
  /** Resolves when a stream that had not ended was left by its reader. */
  readonly left: Promise<void>;
  close(): Promise<void>;
}

export async function startUpstream(): Promise<TestUpstream> {
  const requests: UpstreamRequest[] = [];
  const waiting = new Map<string, () => void>();
  let leave: () => void = () => undefined;
  const left = new Promise<void>((resolve) => {
    leave = resolve;
  });
  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const text = Buffer.concat(chunks).toString();
      const body = text === "" ? {} : (JSON.parse(text) as Record<string, unknown>);
      waiting.get(String(body.model))?.();
      requests.push({ method: req.method ?? "", url: req.url ?? "", headers: req.headers, body });
      res.on("close", () => {
        if (!res.writableFinished) leave();
      });
      answer(req.url ?? "", body, res);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    last: () => requests.at(-1) as UpstreamRequest,
    asked: (model) =>
      new Promise((resolve) => {
        waiting.set(model, resolve);
      }),
    left,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function answer(url: string, body: Record<string, unknown>, res: ServerResponse): void {
  const path = url.split("?")[0] ?? "";
  const inPath =
    /\/models\/([^:/]+):/.exec(path)?.[1] ??
    /\/model\/([^/]+)\//.exec(path)?.[1] ??
    /\/deployments\/([^/]+)\//.exec(path)?.[1];
  const model = decodeURIComponent(inPath ?? String(body.model ?? ""));
  const status = /fail-(\d+)/.exec(model)?.[1];
  const usage = { prompt_tokens: COUNTS.input, total_tokens: COUNTS.input };
  if (status) json(res, Number(status), { error: { message: `canned ${status}`, type: "canned" } });
  else if (model === "silent") return;
  else if (model.includes("redirect")) res.writeHead(302, { location: "http://127.0.0.1:9/elsewhere" }).end();
  else if (path.endsWith("/models"))
    json(res, 200, { object: "list", data: [{ id: "upstream-model", object: "model" }] });
  else if (path.endsWith("/embeddings"))
    json(res, 200, { object: "list", model, data: [{ object: "embedding", index: 0, embedding: [0.5, -0.5] }], usage });
  else if (path.endsWith("/count_tokens")) json(res, 200, { input_tokens: COUNTS.input });
  else
    generate(
      path,
      { model, body, cached: model.includes("cached"), tool: model.includes("tool") && !hasToolResult(body) },
      res,
    );
}

function generate(path: string, call: Call, res: ServerResponse): void {
  const [whole, events] = dialect(path, call);
  if (call.body.stream !== true && !path.includes("tream")) {
    json(res, 200, whole());
    return;
  }
  res.writeHead(200, {
    "content-type": path.endsWith("-stream")
      ? "application/vnd.amazon.eventstream"
      : "text/event-stream; charset=utf-8",
  });
  send(res, events(), call.model);
}

/** One event per turn of the loop, so that each is a chunk of its own on the wire. */
function send(res: ServerResponse, events: readonly (string | Buffer)[], model: string): void {
  const stopAt = model.includes("endless") || model.includes("broken") ? Math.ceil(events.length / 2) : events.length;
  let next = 0;
  const step = (): void => {
    if (res.destroyed) return;
    if (next < stopAt) {
      res.write(events[next]);
      next += 1;
      setImmediate(step);
    } else if (model.includes("broken")) {
      const half = String(events[next]);
      res.write(half.slice(0, half.length / 2), () => res.destroy());
    } else if (!model.includes("endless")) res.end();
  };
  step();
}

function json(res: ServerResponse, status: number, value: unknown): void {
  res.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}
