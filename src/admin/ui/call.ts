/**
 * `/ui/api/call` sends playground requests to the gateway's own listeners, because the page is on another port and
 * listeners send it no CORS headers. A request can name only a listener of this process, never an address. The response
 * is JSON lines: the head, body chunks as they arrive, and the end.
 */

import { StringDecoder } from "node:string_decoder";
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import { isHeaderName } from "../../base/header-names.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { openHttpPool } from "../../http/client/http-pool.ts";
import { EgressGuard } from "../../http/egress-guard.ts";
import { HeaderList, isHeaderValue } from "../../http/headers.ts";
import type { HttpCall } from "../../http/http-client.ts";
import { tryReadJson } from "../../json/read-json.ts";
import { type AdminEndpoint, type AdminSink, textResponse } from "../server/endpoint.ts";

const BODY = peerInput("admin-client/body");

export interface ListenerAddress {
  readonly protocol: "http" | "https";
  readonly host: string;
  readonly port: number;
}

export interface CallOptions {
  readonly clock: Clock;
  listener(name: string): ListenerAddress | undefined;
}

/** Beyond this size, the response is not read from the connection until the page catches up. */
const MAX_BUFFERED_BYTES = 1024 * 1024;
const RESUME_CHECK_MS = 50;

const callSchema = z.strictObject({
  listener: z.string(),
  method: z.enum(["GET", "POST", "DELETE"]),
  path: z
    .string()
    .regex(/^\/[\x21-\x7e]*$/, "expected a path that begins with /")
    .max(4096),
  headers: z.record(z.string().refine(isHeaderName), z.string().refine(isHeaderValue)).default({}),
  body: z.string().optional(),
});

type CallRequest = z.output<typeof callSchema>;

export function callEndpoint(options: CallOptions): AdminEndpoint {
  return {
    path: "/ui/api/call",
    doc: "POST: sends a playground request to one of the gateway's listeners.",
    async POST(request) {
      const parsed = callSchema.safeParse(tryReadJson(BODY, await request.body()));
      if (!parsed.success) return textResponse(400, `${z.prettifyError(parsed.error)}\n`);
      const address = options.listener(parsed.data.listener);
      if (!address) return textResponse(404, `there is no listener named ${JSON.stringify(parsed.data.listener)}\n`);
      return {
        status: 200,
        type: "application/x-ndjson",
        stream: (sink) => forward(parsed.data, address, sink, options.clock),
      };
    },
  };
}

function forward(request: CallRequest, address: ListenerAddress, sink: AdminSink, clock: Clock): void {
  const headers = HeaderList.of(request.headers);
  headers.removeHopByHop();
  if (!headers.has("host")) headers.add("host", `${shownHost(address.host)}:${address.port}`);
  const body = request.body === undefined ? undefined : Buffer.from(request.body);
  if (body) headers.set("content-length", String(body.length));

  // The certificate is not verified, because this is the gateway's own listener on the same machine.
  const pool = openHttpPool({
    ...address,
    egress: EgressGuard.for("configuration"),
    ...(address.protocol === "https" ? { tls: { insecure: true } } : {}),
  });
  const decoder = new StringDecoder("utf8");
  const line = (value: unknown): void => void sink.write(`${JSON.stringify(value)}\n`);
  const finish = (last: unknown): void => {
    pool.close();
    line(last);
    sink.end();
  };
  const call = pool.send(
    { method: request.method, path: request.path, headers, body },
    {
      head: (status, answered) => line({ status, headers: headerPairs(answered) }),
      data(chunk) {
        const text = decoder.write(chunk);
        if (text !== "") line({ text });
        if (sink.bufferedBytes() < MAX_BUFFERED_BYTES) return true;
        resumeWhenRead(call, sink, clock);
        return false;
      },
      end() {
        const rest = decoder.end();
        if (rest !== "") line({ text: rest });
        finish({ end: true });
      },
      fail: (error) => finish({ error: error.message }),
    },
  );
  sink.onClose(() => {
    call.abort();
    pool.close();
  });
}

function resumeWhenRead(call: HttpCall, sink: AdminSink, clock: Clock): void {
  const timer = clock.every(RESUME_CHECK_MS, () => {
    if (sink.bufferedBytes() >= MAX_BUFFERED_BYTES) return;
    timer.cancel();
    call.resume();
  });
  sink.onClose(() => timer.cancel());
}

function headerPairs(headers: HeaderList): [string, string][] {
  const pairs: [string, string][] = [];
  for (let i = 0; i < headers.pairs.length; i += 2) pairs.push([headers.pairs[i] ?? "", headers.pairs[i + 1] ?? ""]);
  return pairs;
}

function shownHost(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}
