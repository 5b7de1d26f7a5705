/**
 * A collector for tests that receives OTLP over HTTP (protobuf) and gRPC, and decodes it with the official
 * descriptors (`otlp.binpb`, from the Python package of opentelemetry-proto).
 */
import { readFileSync } from "node:fs";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { resolve } from "node:path";
import { createFileRegistry, fromBinary, toJson } from "@bufbuild/protobuf";
import { type DescriptorProto, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Server, ServerCredentials } from "@grpc/grpc-js";

const SERVICES = { traces: "trace", metrics: "metrics", logs: "logs" } as const;
export type Signal = keyof typeof SERVICES;

// biome-ignore lint/suspicious/noExplicitAny: tests read foreign JSON freely
type Json = any;

export interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly traceState: string | undefined;
  readonly name: string;
  readonly kind: string;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly status: { readonly code?: string; readonly message?: string };
  readonly micros: number;
}

export interface OtlpCollector {
  readonly httpUrl: string;
  readonly grpcUrl: string;
  /** Every export, decoded, in order. */
  readonly received: { signal: Signal; message: Json; headers: Record<string, unknown> }[];
  /** Of HTTP: answers with this status instead; 0 never answers. */
  status: number;
  spans(): Span[];
  logs(): { body: string; severity: string; attributes: Record<string, unknown>; traceId: string }[];
  /** The newest value of each metric's points, by name. */
  metrics(): Map<string, Json>;
  resource(): Record<string, unknown>;
  close(): Promise<void>;
}

const set = fromBinary(FileDescriptorSetSchema, readFileSync(resolve("test/support/otlp/otlp.binpb")));
for (const file of set.file) for (const message of file.messageType) nameFields(message);
const registry = createFileRegistry(set);

/** The names in JSON are left out of descriptors that are compiled into a program. */
function nameFields({ field, nestedType }: DescriptorProto): void {
  for (const one of field) one.jsonName ||= one.name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
  for (const nested of nestedType) nameFields(nested);
}

function decode(signal: Signal, bytes: Uint8Array): Json {
  const service = SERVICES[signal];
  const name = `opentelemetry.proto.collector.${service}.v1.Export${service[0]?.toUpperCase()}${service.slice(1)}ServiceRequest`;
  const schema = registry.getMessage(name);
  if (schema === undefined) throw new Error(`no ${name}`);
  return toJson(schema, fromBinary(schema, bytes), { registry });
}

export async function startCollector(): Promise<OtlpCollector> {
  const received: OtlpCollector["received"] = [];
  const state = { status: 200 };
  const take = (signal: Signal, bytes: Uint8Array, headers: Record<string, unknown>): void =>
    void received.push({ signal, message: decode(signal, bytes), headers });

  const http = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      if (state.status === 0) return;
      const signal = (req.url ?? "").replace("/v1/", "") as Signal;
      if (state.status === 200) take(signal, Buffer.concat(chunks), req.headers as IncomingHttpHeaders);
      res.writeHead(state.status, { "content-type": "application/x-protobuf" }).end();
    });
  });
  await new Promise<void>((done) => http.listen(0, "127.0.0.1", done));

  const grpc = new Server();
  for (const signal of Object.keys(SERVICES) as Signal[]) {
    const service = SERVICES[signal];
    const title = `${service[0]?.toUpperCase()}${service.slice(1)}Service`;
    const identity = (bytes: Buffer): Buffer => bytes;
    grpc.addService(
      {
        Export: {
          path: `/opentelemetry.proto.collector.${service}.v1.${title}/Export`,
          requestStream: false,
          responseStream: false,
          requestSerialize: identity,
          requestDeserialize: identity,
          responseSerialize: identity,
          responseDeserialize: identity,
        },
      },
      {
        Export: (call: { request: Buffer; metadata: { getMap(): Record<string, unknown> } }, done: Json) => {
          take(signal, call.request, call.metadata.getMap());
          done(null, Buffer.alloc(0));
        },
      },
    );
  }
  const grpcPort = await new Promise<number>((done, failed) =>
    grpc.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) =>
      error ? failed(error) : done(port),
    ),
  );

  const of = (signal: Signal): Json[] =>
    received.filter((one) => one.signal === signal).map((one) => one.message as Json);
  // Tests poll for spans, and reading all of them again each time would keep the process busy.
  const read = new Map<Json, Span[]>();
  return {
    httpUrl: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    grpcUrl: `http://127.0.0.1:${grpcPort}`,
    received,
    get status() {
      return state.status;
    },
    set status(status) {
      state.status = status;
    },
    spans: () =>
      of("traces").flatMap((message) => {
        const known = read.get(message) ?? spansIn(message);
        read.set(message, known);
        return known;
      }),
    logs: () =>
      of("logs").flatMap((message) =>
        message.resourceLogs.flatMap((resource: Json) =>
          resource.scopeLogs.flatMap((scope: Json) =>
            scope.logRecords.map((one: Json) => ({
              body: one.body.stringValue,
              severity: one.severityText,
              attributes: attributesOf(one.attributes),
              traceId: hex(one.traceId),
            })),
          ),
        ),
      ),
    metrics: () =>
      new Map(
        of("metrics").flatMap((message) =>
          message.resourceMetrics.flatMap((resource: Json) =>
            resource.scopeMetrics.flatMap((scope: Json) => scope.metrics.map((one: Json) => [one.name, one])),
          ),
        ),
      ),
    resource: () => {
      const [first] = received;
      const list = first?.message.resourceSpans ?? first?.message.resourceMetrics ?? first?.message.resourceLogs;
      return attributesOf(list[0].resource.attributes);
    },
    close: async () => {
      grpc.forceShutdown();
      await new Promise<void>((done) => {
        http.close(() => done());
        http.closeAllConnections();
      });
    },
  };
}

function spansIn(message: Json): Span[] {
  return message.resourceSpans.flatMap((resource: Json) =>
    resource.scopeSpans.flatMap((scope: Json) => scope.spans.map(asSpan)),
  );
}

function asSpan(span: Json): Span {
  return {
    traceId: hex(span.traceId),
    spanId: hex(span.spanId),
    parentSpanId: hex(span.parentSpanId),
    traceState: span.traceState,
    name: span.name,
    kind: span.kind.replace("SPAN_KIND_", ""),
    attributes: attributesOf(span.attributes),
    status: span.status ?? {},
    micros: Number((BigInt(span.endTimeUnixNano) - BigInt(span.startTimeUnixNano)) / 1000n),
  };
}

export function attributesOf(list: Json[] | undefined): Record<string, unknown> {
  return Object.fromEntries((list ?? []).map(({ key, value }) => [key, plainValue(value)]));
}

function plainValue(value: Json): unknown {
  if (value.arrayValue) return (value.arrayValue.values ?? []).map(plainValue);
  if (value.intValue !== undefined) return Number(value.intValue);
  return Object.values(value)[0];
}

function hex(base64: string | undefined): string {
  return base64 === undefined ? "" : Buffer.from(base64, "base64").toString("hex");
}
