/**
 * Exposes the attributes of an exchange to CEL expressions under their documented names. Getters compute each value on
 * demand.
 */
import { compileExpression } from "../cel/expression.ts";
import { AttributeSource, IS_TRACED } from "../cel/values/attribute-source.ts";
import { celHeaders } from "../cel/values/headers.ts";
import { celFields, type LazyFields } from "../cel/values/values.ts";
import type { HeaderList } from "../http/headers.ts";
import { pathAndQuery } from "../http/request-path.ts";
import type { Trace } from "../record/trace/trace.ts";
import { type CalledTool, revealArguments } from "./mcp-arguments.ts";
import { clientAddress, type Source } from "./source.ts";

const ENV = Object.freeze({});

/** `CelAttributes` can read these fields of an exchange and no others. */
export interface ReadableExchange {
  readonly request: {
    readonly method: string;
    readonly scheme: string;
    readonly host: string;
    readonly path: string;
    readonly rawPath: string;
    readonly query: string;
    readonly version: string;
    readonly headers: HeaderList;
    readonly body: { readonly kind: "none" | "stream" } | { readonly kind: "bytes"; readonly bytes: Buffer };
  };
  readonly response: ReadableResponse | undefined;
  readonly startedAt: number;
  readonly source: Source;
  readonly attributes: {
    readonly jwt?: object;
    readonly apiKey?: object;
    readonly basicAuth?: object;
    readonly extauthz?: object;
    readonly mcpGuardrails?: object;
    readonly llm?: object;
    readonly mcp?: { readonly tool?: object };
    readonly a2a?: object;
    readonly backend?: object;
  };
  readonly mcp: { readonly calledTool: CalledTool | undefined };
  readonly llmRequest?: object | undefined;
  readonly listener: string;
  readonly route: string | undefined;
  readonly trace: Trace | undefined;
  readonly credentials: { readonly secrets: readonly string[] | undefined };
}

interface ReadableResponse {
  readonly status: number;
  readonly headers: HeaderList;
  readonly body?: Buffer;
}

const REQUEST: LazyFields<ReadableExchange> = new Map<string, (exchange: ReadableExchange) => unknown>([
  ["method", ({ request }) => request.method],
  ["scheme", ({ request }) => request.scheme],
  ["host", ({ request }) => request.host],
  ["path", ({ request }) => request.path],
  ["rawPath", ({ request }) => request.rawPath],
  ["pathAndQuery", ({ request }) => pathAndQuery(request)],
  ["uri", ({ request }) => `${request.scheme}://${request.host}${pathAndQuery(request)}`],
  ["version", ({ request }) => `HTTP/${request.version}`],
  ["headers", ({ request }) => celHeaders(request.headers)],
  ["startTime", ({ startedAt }) => new Date(startedAt)],
  ["body", ({ request: { body } }) => (body.kind === "bytes" ? body.bytes.toString() : undefined)],
]);

const PATHS = ["request.path", "request.rawPath", "request.pathAndQuery", "request.uri"];

/** Returns the protection by a policy with these expressions, which is stricter if one of them reads the path. */
export function protectionBy(sources: readonly (string | undefined)[]): "route" | "paths" {
  const readsPath = sources.some((source) => {
    if (source === undefined) return false;
    try {
      const expression = compileExpression(source);
      return PATHS.some((path) => expression.reads(path));
    } catch {
      // The policy reports the error when it compiles the expression.
      return true;
    }
  });
  return readsPath ? "paths" : "route";
}

const RESPONSE: LazyFields<ReadableResponse> = new Map<string, (response: ReadableResponse) => unknown>([
  ["code", ({ status }) => status],
  ["headers", ({ headers }) => celHeaders(headers)],
  ["body", ({ body }) => body?.toString()],
]);

export class CelAttributes extends AttributeSource {
  readonly #exchange: ReadableExchange;

  constructor(exchange: ReadableExchange) {
    super();
    this.#exchange = exchange;
  }

  override get [IS_TRACED](): boolean {
    return this.#exchange.trace !== undefined;
  }

  static traceOf(attributes: AttributeSource): Trace | undefined {
    return #exchange in attributes ? attributes.#exchange.trace : undefined;
  }

  /** Returns header values that the trace must redact wherever they appear. */
  static secretsOf(attributes: AttributeSource): readonly string[] {
    return (#exchange in attributes ? attributes.#exchange.credentials.secrets : undefined) ?? [];
  }

  get request(): object {
    return celFields(this.#exchange, REQUEST);
  }

  get response(): object | undefined {
    const { response } = this.#exchange;
    return response && celFields(response, RESPONSE);
  }

  get source(): Record<string, unknown> {
    const { address, port, identity } = this.#exchange.source;
    return identity === undefined ? { address, port } : { address, port, identity };
  }

  get client(): Record<string, unknown> {
    return { address: clientAddress(this.#exchange.source) };
  }

  get jwt(): object | undefined {
    return this.#exchange.attributes.jwt;
  }

  get apiKey(): object | undefined {
    return this.#exchange.attributes.apiKey;
  }

  get basicAuth(): object | undefined {
    return this.#exchange.attributes.basicAuth;
  }

  get extauthz(): object | undefined {
    return this.#exchange.attributes.extauthz;
  }

  get mcpGuardrails(): object | undefined {
    return this.#exchange.attributes.mcpGuardrails;
  }

  get llm(): object | undefined {
    return this.#exchange.attributes.llm;
  }

  get llmRequest(): object | undefined {
    return this.#exchange.llmRequest;
  }

  get mcp(): object | undefined {
    const {
      mcp: { calledTool },
      attributes,
    } = this.#exchange;
    revealArguments(calledTool, attributes.mcp?.tool);
    return attributes.mcp;
  }

  get a2a(): object | undefined {
    return this.#exchange.attributes.a2a;
  }

  get backend(): object | undefined {
    return this.#exchange.attributes.backend;
  }

  get proxy(): Record<string, unknown> {
    const { listener, route } = this.#exchange;
    return { listener: { name: listener }, ...(route === undefined ? {} : { route: { name: route } }) };
  }

  get env(): object {
    return ENV;
  }
}

/** Returns the attributes of an exchange with another response, for example one that is not sent to the client. */
export function attributesWithResponse(exchange: ReadableExchange, response: ReadableResponse): CelAttributes {
  const { request, startedAt, source, attributes, mcp, listener, route, credentials } = exchange;
  return new CelAttributes({
    request,
    response,
    startedAt,
    source,
    attributes,
    mcp,
    listener,
    route,
    credentials,
    trace: undefined,
  });
}
