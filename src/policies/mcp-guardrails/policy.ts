/**
 * `mcpGuardrails`: external services inspect MCP requests and results over agentgateway's gRPC protocol, and can change
 * or reject them. If a service does not respond in time, the message is rejected unless `failureMode` is `open`.
 */
import { z } from "zod";
import { isHeaderName } from "../../base/header-names.ts";
import type { CelOutput, Expression } from "../../cel/expression.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { McpCheck, McpGuardrails, McpRejection, McpVerdict } from "../../core/mcp-guardrails.ts";
import { bodyFor, type CompileEnv, definePolicy, type Hooks } from "../../core/policy.ts";
import { celSource, duration, hostAndPort } from "../../core/schema.ts";
import { MESSAGE_HEADERS } from "../../http/header-rules.ts";
import type { HeaderList } from "../../http/headers.ts";
import { pathAndQuery } from "../../http/request-path.ts";
import { withoutOwnCookies } from "../../identity/access/withheld-credentials.ts";
import { applyHeaders } from "../../policy-parts/service-headers.ts";
import { readServiceTls, serviceTls } from "../../policy-parts/service-tls.ts";
import { isMethodPattern, phasesOf } from "./method-phases.ts";
import {
  type Decision,
  type GuardrailClient,
  MAX_BODY_BYTES,
  openGuardrailClient,
  parseResult,
} from "./processor-client.ts";
import { toWireStruct, type WireHeader, type WireResult, type WireStruct } from "./protocol.ts";

const DEFAULT_TIMEOUT_MS = 1_000;
const MAX_PROCESSORS = 16;
const LOG_INTERVAL_MS = 10_000;
const INTERNAL_ERROR = -32603;
const PSEUDO_HEADERS: ReadonlySet<string> = new Set([":authority", ":method", ":path", ":scheme"]);

function sentHeaderName() {
  return z
    .string()
    .refine((name) => PSEUDO_HEADERS.has(name) || isHeaderName(name), "not a valid HTTP header name")
    .transform((name) => name.toLowerCase());
}

const processorSchema = z.strictObject({
  host: hostAndPort("the service's gRPC address").describe(
    "`host:port` of a service that implements `agentgateway.dev.ext_mcp.ExtMcp` over gRPC.",
  ),
  methods: z
    .record(
      z.string().refine(isMethodPattern, "expected a method, `prefix*`, `*suffix`, or `*`"),
      z.enum(["off", "request", "response", "full"]),
    )
    .refine((methods) => Object.keys(methods).length > 0, "name at least one method")
    .describe(
      'The methods that the service gets, for example `{"tools/call": full, "*/list": response}`: `request` sends the parameters, `response` the result, `full` both. Keys can be `prefix*`, `*suffix`, or `*`; the most specific key applies.',
    ),
  tls: serviceTls.optional().describe("Uses TLS to the service. Default: no TLS."),
  timeout: duration().default(DEFAULT_TIMEOUT_MS).describe("How long each message waits for the service. Default: 1s."),
  failureMode: z
    .enum(["closed", "open"])
    .default("closed")
    .describe(
      "What happens when the service does not respond: `closed` rejects the message, `open` continues without the service.",
    ),
  metadata: z
    .record(z.string().min(1), celSource())
    .optional()
    .describe("CEL expressions whose values are sent to the service, by name. A value that fails is not sent."),
  requestHeaders: z
    .strictObject({
      allowed: z.array(sentHeaderName()).min(1).optional().describe("The only headers that are sent. Default: all."),
      disallowed: z.array(sentHeaderName()).optional().describe("Headers that are not sent."),
    })
    .optional()
    .describe(
      "The headers of the client's request that are sent to the service, with `:authority`, `:method`, `:path`, and `:scheme`.",
    ),
});

const schema = z.strictObject({
  processors: z
    .array(processorSchema)
    .min(1)
    .max(MAX_PROCESSORS)
    .describe(
      "The services, which run in this order for requests and for results. The first rejection ends the request.",
    ),
});

type PhaseName = "request" | "response";

/** One service with its settings. Exchanges compare processors by identity. */
interface Processor {
  readonly config: z.output<typeof processorSchema>;
  readonly metadata: readonly (readonly [name: string, value: Expression])[];
  readonly client: GuardrailClient;
  readonly owner: string;
  logFailure(reason: string): void;
  count(result: string): void;
}

export const mcpGuardrails = definePolicy({
  kind: "mcpGuardrails",
  doc: "Sends MCP requests and results to external services (agentgateway's protocol over gRPC), which can change or reject them.",
  scopes: ["gateway", "route", "backend"],
  role: "security",
  protection: () => "paths",
  schema,

  compile(config, env): Hooks {
    const processors = config.processors.map((processor) => compileProcessor(processor, env));
    const values = processors.flatMap(({ metadata }) => metadata.map(([, value]) => value));
    return {
      access: {
        ...bodyFor(values),
        head(exchange) {
          const outer = exchange.mcp.guardrails;
          const before = outer instanceof ExchangeGuardrails ? outer : undefined;
          exchange.mcp.guardrails = new ExchangeGuardrails(exchange, processors, before);
          return undefined;
        },
      },
    };
  },
});

function compileProcessor(config: Processor["config"], env: CompileEnv): Processor {
  const { host, failureMode } = config;
  const tls = readServiceTls(config.tls, env);
  const client = env.acquire(
    `mcpGuardrails service ${host} ${JSON.stringify(config.tls ?? {})}`,
    { egress: env.egress, tls },
    () => openGuardrailClient(host, env.clock, env.egress, tls),
    (closing: GuardrailClient) => closing.close(),
  );
  const counter = env.metrics.counter("gateway_mcp_guardrails_total", "Messages to services of mcpGuardrails.", [
    "owner",
    "result",
  ]);
  const logger = env.logger.for("policies");
  let loggedAtMs = Number.NEGATIVE_INFINITY;
  return {
    config,
    metadata: Object.entries(config.metadata ?? {}).map(([name, source]) => [name, env.cel(source)] as const),
    client,
    owner: env.scopeName,
    count: (result) => counter.labels(env.scopeName, result).add(),
    logFailure(reason) {
      const nowMs = env.clock.monotonicMs();
      if (nowMs - loggedAtMs < LOG_INTERVAL_MS) return;
      loggedAtMs = nowMs;
      logger.warn("the MCP guardrail service did not respond", { service: host, failureMode, reason });
    },
  };
}

/** Runs the processors of all scopes for the messages of one exchange, which can be a batch. */
class ExchangeGuardrails implements McpGuardrails {
  readonly processors: readonly Processor[];
  readonly #exchange: Exchange;
  /** Copied, because later policies can add credentials for the backend. */
  readonly #headers: HeaderList;

  constructor(exchange: Exchange, added: readonly Processor[], before: ExchangeGuardrails | undefined) {
    const processors = before?.processors ?? [];
    this.#exchange = exchange;
    // The hook of a backend runs again for each attempt.
    this.processors = [...processors, ...added.filter((processor) => !processors.includes(processor))];
    this.#headers = before === undefined ? withoutOwnCookies(exchange.request.headers) : before.#headers;
  }

  checksRequest(method: string): boolean {
    return this.#selected(method, "request").length > 0;
  }

  checksResponse(method: string): boolean {
    return this.#selected(method, "response").length > 0;
  }

  async checkRequest(check: McpCheck): Promise<McpVerdict> {
    const headers = this.#headers.clone();
    const changes: ((headers: HeaderList) => void)[] = [];
    const verdict = await this.#check("request", check, headers, (change) => {
      change(headers);
      changes.push(change);
    });
    if (verdict.rejection || changes.length === 0) return verdict;
    return {
      body: verdict.body,
      changeHeaders: (sent) => {
        for (const change of changes) change(sent);
      },
    };
  }

  checkResponse(check: McpCheck): Promise<McpVerdict> {
    return this.#check("response", check, this.#headers, () => undefined);
  }

  #selected(method: string, phase: PhaseName): readonly Processor[] {
    return this.processors.filter(({ config }) => phasesOf(config.methods, method)[phase]);
  }

  async #check(
    phase: PhaseName,
    check: McpCheck,
    headers: HeaderList,
    changed: (change: (headers: HeaderList) => void) => void,
  ): Promise<McpVerdict> {
    let { body } = check;
    for (const processor of this.#selected(check.method, phase)) {
      let decision: Decision;
      try {
        decision = parseResult(await this.#send(processor, phase, { ...check, body }, headers));
      } catch (error) {
        const rejection = this.#failed(processor, phase, check.method, error as Error);
        if (rejection !== undefined) return { rejection };
        continue;
      }
      processor.count(decision.kind);
      if (decision.kind === "rejected") return { rejection: this.#rejected(processor, phase, check.method, decision) };
      this.#record(processor, phase, check.method, {
        result: decision.kind,
        set: decision.set.map(({ name }) => name),
        removed: [...decision.remove],
      });
      const { set, remove, metadata } = decision;
      if (metadata !== undefined) this.#expose(metadata);
      if (set.length > 0 || remove.length > 0)
        changed((sent) => {
          applyHeaders(sent, set);
          for (const name of remove) sent.delete(name);
        });
      // Without a body, the service got none, and a change is ignored.
      if (body !== undefined) body = decision.body ?? body;
    }
    return { body: body === check.body ? undefined : body };
  }

  #send(processor: Processor, phase: PhaseName, check: McpCheck, headers: HeaderList): Promise<WireResult> {
    const { config, client } = processor;
    const body = check.body === undefined ? undefined : Buffer.from(check.body);
    if (body && body.length > MAX_BODY_BYTES)
      return Promise.reject(new Error(`a message of ${body.length} bytes, more than ${MAX_BODY_BYTES}`));
    const common = {
      serviceNames: check.services,
      method: check.method,
      metadataContext: this.#metadata(processor),
    };
    if (phase === "response")
      return client.checkResponse({ ...common, mcpResponse: body ?? Buffer.alloc(0) }, config.timeout);
    const sent = sentHeaders(this.#exchange, headers, config.requestHeaders);
    return client.checkRequest({ ...common, mcpRequest: body, headers: sent }, config.timeout);
  }

  #metadata({ metadata }: Processor): WireStruct | undefined {
    if (metadata.length === 0) return undefined;
    const { celAttributes } = this.#exchange;
    const values = metadata.flatMap(([name, expression]): (readonly [string, CelOutput])[] => {
      const result = expression.evaluate(celAttributes);
      return result.ok ? [[name, result.value]] : [];
    });
    return toWireStruct(values);
  }

  /** A rule for one message of a batch must not read the values of another message. */
  #expose(metadata: Readonly<Record<string, unknown>>): void {
    const { attributes, mcp } = this.#exchange;
    if (!mcp.isBatch) attributes.mcpGuardrails = { ...attributes.mcpGuardrails, ...metadata };
  }

  #rejected(
    { config }: Processor,
    phase: PhaseName,
    method: string,
    { code, message, data }: Extract<Decision, { kind: "rejected" }>,
  ): McpRejection {
    const exchange = this.#exchange;
    const detail = `the service ${config.host} of mcpGuardrails rejected the ${phase} of ${method}: ${message}`;
    exchange.decidedBy = { policy: "mcpGuardrails", rule: undefined };
    const step = exchange.steps.findLast(({ policy }) => policy === "mcpGuardrails");
    if (step) step.verdict = "refused";
    this.#record({ config }, phase, method, { result: "rejected", code, reason: message });
    return { code, message, ...(data === undefined ? {} : { data }), detail, isFailure: false };
  }

  /** Returns undefined if the message continues without the processor. */
  #failed(processor: Processor, phase: PhaseName, method: string, error: Error): McpRejection | undefined {
    const { host, failureMode } = processor.config;
    processor.count("failed");
    processor.logFailure(error.message);
    this.#record(processor, phase, method, { result: "failed", reason: error.message });
    if (failureMode === "open") return undefined;
    return {
      code: INTERNAL_ERROR,
      message: "the MCP guardrail service is not available",
      detail: `the service ${host} of mcpGuardrails failed for the ${phase} of ${method}: ${error.message}`,
      isFailure: true,
    };
  }

  #record({ config }: Pick<Processor, "config">, phase: PhaseName, method: string, details: object): void {
    this.#exchange.trace?.point({
      type: "policyEvent",
      kind: "mcpGuardrails",
      details: { service: config.host, phase, method, ...details },
    });
  }
}

/** Sends each value of a repeated header. Values are bytes, because HTTP does not require UTF-8. */
function sentHeaders(
  { request }: Exchange,
  headers: HeaderList,
  filter: Processor["config"]["requestHeaders"],
): WireHeader[] {
  const isSent = (name: string): boolean =>
    filter?.disallowed?.includes(name) !== true && (filter?.allowed?.includes(name) ?? true);
  const sent: WireHeader[] = [];
  const add = (key: string, value: string): void => {
    if (isSent(key)) sent.push({ key, value: Buffer.from(value, "latin1") });
  };
  add(":method", request.method);
  add(":scheme", request.scheme);
  add(":authority", request.host);
  add(":path", pathAndQuery(request));
  const { pairs } = headers;
  for (let i = 0; i < pairs.length; i += 2) {
    const name = pairs[i] as string;
    if (!MESSAGE_HEADERS.has(name) && name !== "host") add(name, pairs[i + 1] as string);
  }
  return sent;
}
