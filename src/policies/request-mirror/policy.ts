/**
 * `requestMirror`: sends copies of requests to another server and discards its responses or compares them with the
 * backend's. A copy is sent after all rules have admitted the request.
 */

import { z } from "zod";
import type { Exchange } from "../../core/exchange.ts";
import { type CompileEnv, definePolicy, machineOf, sending } from "../../core/policy.ts";
import { exactlyOneOf, markLocal } from "../../core/schema.ts";
import { addedForwardedFor } from "../../core/source.ts";
import { parseAddress } from "../../http/backend-address.ts";
import { openEndpointPools } from "../../http/client/endpoint-pools.ts";
import { addForwarded, type HeaderList } from "../../http/headers.ts";
import { pathAndQuery } from "../../http/request-path.ts";
import { withholdCredentials } from "../../identity/access/withheld-credentials.ts";
import { ComparedResponse, compareCopies, expectCopy, watchBackend } from "./compare-responses.ts";

const MAX_MIRRORED_BYTES = 256 * 1024;
/** While this many copies are in flight to a mirror, further copies are dropped. */
const MAX_COPIES = 100;
const TIMEOUT_MS = 30_000;

const mirror = exactlyOneOf(
  z.strictObject({
    // Cluster resources must not set a host, because a mirror could reach the gateway's own admin interface with unsafe
    // methods.
    host: markLocal(
      z.string().refine((text) => parseAddress(text).ok, "expected host:port or an http:// URL"),
      { what: "a host by its address" },
    )
      .optional()
      .describe("`host:port` of the server that receives the copies."),
    // Cluster resources must not name a Service, because a name bypasses the ReferenceGrant check of an HTTPRoute
    // filter.
    service: markLocal(z.strictObject({ name: z.string().min(1).max(400) }), { what: "a Service by its name" })
      .optional()
      .describe("A Service of the cluster, as `namespace/name:port`."),
    percent: z.number().min(0).max(100).optional().describe("The percentage of requests to mirror. Default: 100."),
    compare: z
      .boolean()
      .optional()
      .describe(
        "Compares the responses with those of the backend: status, JSON structure, and time. See `gwctl mirror report`.",
      ),
  }),
  ["host", "service"],
);

export const requestMirror = definePolicy({
  kind: "requestMirror",
  doc: "Sends copies of requests to another server and ignores or compares its responses.",
  scopes: ["route", "backend"],
  protection: () => "none",
  schema: z.array(mirror).min(1).max(16),

  compile(config, env) {
    const mirrors = config.map((entry, i) => openMirror(entry, `${env.scopeName} requestMirror ${i}`, env));
    const compares = config.some(({ compare }) => compare === true);
    return {
      ...(compares ? { response: { head: watchBackend }, settle: compareCopies } : {}),
      shape: sending(env, "requestMirror", {
        bodyBytes({ request: { body } }) {
          if (body.kind !== "stream" || body.length === undefined || body.length > MAX_MIRRORED_BYTES) return undefined;
          return MAX_MIRRORED_BYTES;
        },
        head(exchange) {
          if (exchange.request.body.kind === "stream") return exchange.skip("the body is too large to be mirrored");
          for (const prepare of mirrors) {
            exchange.onAdmitted ??= [];
            exchange.onAdmitted.push(prepare(exchange));
          }
          return undefined;
        },
      }),
    };
  },
});

interface OutgoingCopy {
  readonly method: string;
  readonly path: string;
  readonly headers: HeaderList;
  readonly body: Buffer | undefined;
}

function openMirror(
  { host, service, percent = 100, compare = false }: z.output<typeof mirror>,
  key: string,
  env: CompileEnv,
): (exchange: Exchange) => () => void {
  if (host !== undefined) machineOf(env, "mirror to a host");
  const protocol = host?.startsWith("https:") ? "https" : "http";
  const egress = host === undefined ? env.egress.to("services") : env.egress;
  const pools = env.acquire(
    key,
    { host, service, egress },
    () => openEndpointPools({ protocol, egress }, env.clock),
    (open) => open.close(),
  );
  const fixed = host === undefined ? undefined : [host];
  let copies = 0;
  let share = 0;

  const name = host ?? service?.name ?? "";

  return (exchange) => {
    const { request, id } = exchange;
    const { method, body } = request;
    const copy = { path: request.path, query: request.query, headers: request.headers.clone() };
    withholdCredentials(exchange, copy);
    const { headers } = copy;
    headers.removeHopByHop(new Set());
    addForwarded(headers, addedForwardedFor(exchange.source), request.scheme, exchange.originalHost);
    headers.set("host", request.host);
    headers.set("x-request-id", id);
    if (body.kind === "bytes") headers.set("content-length", String(body.bytes.length));
    return () =>
      send(exchange, {
        method,
        path: pathAndQuery(copy),
        headers,
        body: body.kind === "bytes" ? body.bytes : undefined,
      });
  };

  function send(exchange: Exchange, sent: OutgoingCopy): void {
    // Requests are mirrored at regular intervals instead of at random.
    share += percent;
    if (share < 100) return;
    share -= 100;
    const next = pools.next(fixed ?? env.endpoints?.addresses(service?.name ?? "") ?? []);
    if (next === undefined || copies >= MAX_COPIES) return;
    copies += 1;
    const copy = compare ? expectCopy(exchange, name) : undefined;
    const startedMs = env.clock.monotonicMs();
    let response: ComparedResponse | undefined;
    let isFinished = false;
    const finish = (failed?: string): void => {
      if (isFinished) return;
      isFinished = true;
      copies -= 1;
      timer.cancel();
      if (copy === undefined) return;
      const tookMs = env.clock.monotonicMs() - startedMs;
      if (failed !== undefined) response?.release();
      copy.ended = failed === undefined && response ? response : { failed: failed ?? "no response", tookMs };
      copy.onEnd?.();
    };
    const call = next.pool.send(sent, {
      head(status, headers) {
        if (copy !== undefined) response = new ComparedResponse(status, headers, env.clock.monotonicMs() - startedMs);
      },
      data(chunk) {
        response?.add(chunk);
        return true;
      },
      end: () => finish(),
      fail: ({ message }) => finish(message),
    });
    const timer = env.clock.after(TIMEOUT_MS, () => {
      call.abort();
      finish(`no complete response within ${TIMEOUT_MS / 1000} s`);
    });
  }
}
