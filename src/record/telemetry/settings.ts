/**
 * Defines the schema of `config.telemetry`: the collector that receives traces, metrics, and log records over OTLP, and
 * the share of requests that are traced.
 */
import { z } from "zod";
import { celSource, duration, headerName, headerValue } from "../../core/schema.ts";

const SIGNALS = ["traces", "metrics", "logs"] as const;
export type Signal = (typeof SIGNALS)[number];

const endpoint = z
  .string()
  .refine(isEndpoint, "expected a URL such as http://localhost:4318 or https://collector:4317");

const otlp = z.strictObject({
  endpoint: endpoint.describe(
    "The collector: `http://host:4318` for `protocol: http`, `http://host:4317` for `grpc`; `https://` for TLS. " +
      "With `http` the paths `/v1/traces`, `/v1/metrics` and `/v1/logs` are added.",
  ),
  protocol: z
    .enum(["http", "grpc"])
    .default("http")
    .describe("`http` sends protobuf over HTTP/1.1, `grpc` over HTTP/2. Default: http."),
  headers: z
    .record(headerName(), headerValue().meta({ secret: true }))
    .optional()
    .describe("Headers of every export, for example an API key for the collector. Values are never shown."),
  signals: z
    .array(z.enum(SIGNALS))
    .min(1)
    .default(["traces", "metrics"])
    .describe("The signals to export. `logs` are the access log and, with `config.audit`, the audit records."),
  spans: z
    .enum(["request", "all"])
    .default("all")
    .describe(
      "`request`: one span per request. `all`: also one per policy phase, backend attempt, MCP call and LLM call. Default: all.",
    ),
  sampling: z
    .strictObject({
      ratio: z
        .number()
        .min(0)
        .max(1)
        .default(1)
        .describe("The fraction of requests to trace, decided when a request arrives. Default: 1."),
      followClient: z
        .boolean()
        .default(true)
        .describe(
          "Whether the sampled flag of a client's `traceparent` decides instead of `ratio`. Set it to false where clients are not trusted. Default: true.",
        ),
    })
    .optional()
    .describe("Which requests are traced."),
  resource: z
    .record(z.string().min(1).max(255), z.string().max(1024))
    .optional()
    .describe("Resource attributes of all exported data, for example `deployment.environment.name: prod`."),
  attributes: z
    .record(z.string().min(1).max(255), celSource())
    .optional()
    .describe(
      "Attributes of the request's span, as names and CEL expressions, for example `tenant: jwt.tenant`. `span.name` is the name of the span. Members of a map become attributes of their own.",
    ),
  removeAttributes: z
    .array(z.string().min(1).max(255))
    .optional()
    .describe("Attributes that the gateway sets and that spans must not have, for example `user_agent.original`."),
  metricsInterval: duration()
    .refine((ms) => ms >= 1000, "expected at least 1s")
    .default(60_000)
    .describe("How often metrics are exported. Default: 60s."),
  timeout: duration()
    .refine((ms) => ms >= 100, "expected at least 100ms")
    .default(10_000)
    .describe("How long one export may take, including retries. Default: 10s."),
});

export const telemetrySchema = z.strictObject({
  otlp: otlp.optional().describe("Exports to an OpenTelemetry collector. Without it, nothing is exported or measured."),
});

export type OtlpSettings = z.output<typeof otlp>;

function isEndpoint(text: string): boolean {
  try {
    const url = new URL(text);
    return /^https?:$/.test(url.protocol) && url.username === "" && url.search === "" && url.hash === "";
  } catch {
    return false;
  }
}
