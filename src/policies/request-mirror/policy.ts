/**
 * `requestMirror`: a copy of each request, or of a share of them, to another server, whose answers are thrown away or
 * compared with the backend's. The client never waits for it. A body is copied when its length is known and small enough; other requests with a body are
 * not mirrored, because a copy would hold them up or fill the memory. A copy is made where the policy runs and sent when
 * all rules have admitted the request, so that the other server never gets one that a rule about its body rejects.
 */

import { z } from "zod";
import type { Exchange } from "../../core/exchange.ts";
import { type CompileEnv, definePolicy } from "../../core/policy.ts";
import { exactlyOneOf, markLocal } from "../../core/schema.ts";
import { parseAddress } from "../../http/backend-address.ts";
import { openEndpointPools } from "../../http/client/endpoint-pools.ts";
import { addForwarded, type HeaderList } from "../../http/headers.ts";
import { pathAndQuery } from "../../http/request-path.ts";
import { ComparedAnswer, compareCopies, expectCopy, watchBackend } from "./compare-answers.ts";

/** Copies of larger bodies would be felt. */
const MAX_MIRRORED_BYTES = 256 * 1024;
/** A mirror that does not keep up gets no more. */
const MAX_COPIES = 100;
const TIMEOUT_MS = 30_000;

const mirror = exactlyOneOf(
  z.strictObject({
    // From a cluster the gateway's own interfaces would be in reach, with methods that change something.
    host: markLocal(
      z.string().refine((text) => parseAddress(text).ok, "expected host:port or an http:// URL"),
      { what: "a host by its address" },
    )
      .optional()
      .describe("`host:port` of the server that gets the copies."),
    // A route's own filter refers to a Service, and is asked whether it may; a name alone is not.
    service: markLocal(z.strictObject({ name: z.string().min(1).max(400) }), { what: "a Service by its name" })
      .optional()
      .describe("A Service of the cluster, as `namespace/name:port`."),
    percent: z.number().min(0).max(100).optional().describe("The share of requests. Default: 100."),
    compare: z
      .boolean()
      .optional()
      .describe("Compares its answers with the backend's: status, shape of JSON, time. See `gwctl mirror report`."),
  }),
  ["host", "service"],
);

export const requestMirror = definePolicy({
  kind: "requestMirror",
  doc: "Sends copies of requests to another server and ignores its answers, or compares them.",
  scopes: ["route", "backend"],
  schema: z.array(mirror).min(1).max(16),

  compile(config, env) {
    const mirrors = config.map((one, i) => openMirror(one, `${env.owner} requestMirror ${i}`, env));
    const compares = config.some(({ compare }) => compare === true);
    return {
      sends: true,
      ...(compares ? { response: watchBackend, settle: compareCopies } : {}),
      bodyBytes({ request: { body } }) {
        if (body.kind !== "stream" || body.length === undefined || body.length > MAX_MIRRORED_BYTES) return undefined;
        return MAX_MIRRORED_BYTES;
      },
      request(exchange) {
        if (exchange.request.body.kind === "stream") return exchange.skip("the body is too large to be mirrored");
        for (const prepare of mirrors) {
          exchange.onAdmitted ??= [];
          exchange.onAdmitted.push(prepare(exchange));
        }
        return undefined;
      },
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
  if (env.isConfined && host !== undefined) throw new Error("a document of a cluster cannot mirror to a host");
  const protocol = host?.startsWith("https:") ? "https" : "http";
  const pools = env.acquire(
    key,
    { host, service },
    () => openEndpointPools({ protocol }, env.clock),
    (open) => open.close(),
  );
  const fixed = host === undefined ? undefined : [host];
  let copies = 0;
  let share = 0;

  const name = host ?? service?.name ?? "";

  return (exchange) => {
    const { request, id } = exchange;
    const { method, body } = request;
    const path = pathAndQuery(request);
    const headers = request.headers.clone();
    headers.removeHopByHop(new Set());
    addForwarded(headers, exchange.source.address, request.scheme, exchange.originalHost);
    headers.set("host", request.host);
    headers.set("x-request-id", id);
    if (body.kind === "bytes") headers.set("content-length", String(body.bytes.length));
    return () => send(exchange, { method, path, headers, body: body.kind === "bytes" ? body.bytes : undefined });
  };

  function send(exchange: Exchange, sent: OutgoingCopy): void {
    // Spread evenly, so that a share is one also of few requests.
    share += percent;
    if (share < 100) return;
    share -= 100;
    const next = pools.next(fixed ?? env.endpoints?.addresses(service?.name ?? "") ?? []);
    if (next === undefined || copies >= MAX_COPIES) return;
    copies += 1;
    const copy = compare ? expectCopy(exchange, name) : undefined;
    const startedMs = env.clock.monotonicMs();
    let answer: ComparedAnswer | undefined;
    let isOver = false;
    const over = (failed?: string): void => {
      if (isOver) return;
      isOver = true;
      copies -= 1;
      timer.cancel();
      if (copy === undefined) return;
      const tookMs = env.clock.monotonicMs() - startedMs;
      if (failed !== undefined) answer?.forget();
      copy.ended = failed === undefined && answer ? answer : { failed: failed ?? "no answer", tookMs };
      copy.onEnd?.();
    };
    const call = next.pool.send(sent, {
      head(status, headers) {
        if (copy !== undefined) answer = new ComparedAnswer(status, headers, env.clock.monotonicMs() - startedMs);
      },
      data(chunk) {
        answer?.add(chunk);
        return true;
      },
      end: () => over(),
      error: ({ message }) => over(message),
    });
    const timer = env.clock.after(TIMEOUT_MS, () => {
      call.abort();
      over(`no whole answer within ${TIMEOUT_MS / 1000} s`);
    });
  }
}
