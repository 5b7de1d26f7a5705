/**
 * The official OpenTelemetry exporters: protobuf over HTTP/1.1 or gRPC, with the retries that the protocol asks for. They
 * read no environment variables, because everything about an export stands in the configuration.
 */
import type { IOtlpExportDelegate } from "@opentelemetry/otlp-exporter-base";
import { createOtlpHttpExportDelegate, httpAgentFactoryFromOptions } from "@opentelemetry/otlp-exporter-base/node-http";
import {
  createEmptyMetadata,
  createInsecureCredentials,
  createOtlpGrpcExportDelegate,
  createSslCredentials,
} from "@opentelemetry/otlp-grpc-exporter-base";
import {
  type ISerializer,
  LogsExporterMetricsHelper,
  MetricsExporterMetricsHelper,
  ProtobufLogsSerializer,
  ProtobufMetricsSerializer,
  ProtobufTraceSerializer,
  TraceExporterMetricsHelper,
} from "@opentelemetry/otlp-transformer";
import type { OtlpSettings } from "./settings.ts";
import type { ReadableLogRecord, ReadableSpan, ResourceMetrics } from "./signals.ts";

export interface Sender<Payload> {
  /** Rejects when the collector has not taken it. */
  send(payload: Payload): Promise<void>;
  close(): void;
}

export interface OtlpSenders {
  readonly spans: Sender<ReadableSpan[]>;
  readonly logs: Sender<ReadableLogRecord[]>;
  readonly metrics: Sender<ResourceMetrics>;
}

/** Exports of one signal are sent one after the other. */
const CONCURRENT = 1;

export function createOtlpSenders(settings: OtlpSettings): OtlpSenders {
  return {
    spans: senderOf(settings, "trace", "traces", ProtobufTraceSerializer, TraceExporterMetricsHelper),
    logs: senderOf(settings, "logs", "logs", ProtobufLogsSerializer, LogsExporterMetricsHelper),
    metrics: senderOf(settings, "metrics", "metrics", ProtobufMetricsSerializer, MetricsExporterMetricsHelper),
  };
}

function senderOf<Payload, Response>(
  settings: OtlpSettings,
  service: "trace" | "logs" | "metrics",
  path: string,
  serializer: ISerializer<Payload, Response>,
  helper: Parameters<typeof createOtlpHttpExportDelegate<Payload, Response>>[3],
): Sender<Payload> {
  const delegate =
    settings.protocol === "grpc"
      ? grpcDelegate(settings, service, serializer, helper)
      : httpDelegate(settings, path, serializer, helper);
  return {
    send: (payload) =>
      new Promise((resolve, reject) => {
        delegate.export(payload, ({ code, error }) => {
          if (code === 0) resolve();
          else reject(error ?? new Error("the collector did not accept the export"));
        });
      }),
    close: () => void delegate.shutdown().catch(() => undefined),
  };
}

function httpDelegate<Payload, Response>(
  { endpoint, headers = {}, timeout }: OtlpSettings,
  path: string,
  serializer: ISerializer<Payload, Response>,
  helper: Parameters<typeof createOtlpHttpExportDelegate<Payload, Response>>[3],
): IOtlpExportDelegate<Payload> {
  return createOtlpHttpExportDelegate(
    {
      url: `${endpoint.replace(/\/+$/, "")}/v1/${path}`,
      headers: async () => ({ ...headers, "content-type": "application/x-protobuf" }),
      timeoutMillis: timeout,
      concurrencyLimit: CONCURRENT,
      compression: "none",
      agentFactory: httpAgentFactoryFromOptions({ keepAlive: true }),
    },
    serializer,
    "otlp_http_exporter",
    helper,
    undefined,
  );
}

function grpcDelegate<Payload, Response>(
  { endpoint, headers = {}, timeout }: OtlpSettings,
  service: "trace" | "logs" | "metrics",
  serializer: ISerializer<Payload, Response>,
  helper: Parameters<typeof createOtlpGrpcExportDelegate<Payload, Response>>[3],
): IOtlpExportDelegate<Payload> {
  const { host, protocol } = new URL(endpoint);
  const title = `${service[0]?.toUpperCase()}${service.slice(1)}`;
  const address = /:\d+$/.test(host) ? host : `${host}:${protocol === "https:" ? 443 : 80}`;
  return createOtlpGrpcExportDelegate(
    {
      url: address,
      metadata: () => {
        const metadata = createEmptyMetadata();
        for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
        return metadata;
      },
      credentials: () => (protocol === "https:" ? createSslCredentials() : createInsecureCredentials()),
      timeoutMillis: timeout,
      concurrencyLimit: CONCURRENT,
      compression: "none",
    },
    serializer,
    "otlp_grpc_exporter",
    helper,
    undefined,
    `${title}ExportService`,
    `/opentelemetry.proto.collector.${service}.v1.${title}Service/Export`,
  );
}
